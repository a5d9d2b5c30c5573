// The state of the page: made once, handed to components by context. Each part has a file of its own; here they are joined,
// together with what concerns them all: which view is shown, notices, and what assistive technology is told.
import { computed, effect, type Signal, signal } from '@preact/signals'
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import { ServerKey } from '../engines/serverEngine.js'
import { Answers } from './answers.js'
import { ConversationStore } from './conversationStore.js'
import { Conversations } from './conversations.js'
import { EngineFeed } from './engineFeed.js'
import { Engines } from './engines.js'
import { findStorage, type PageStorage, withoutFailing } from './pageStorage.js'
import { loadSettings, type Settings, saveSettings } from './settings.js'

export type View = 'chat' | 'engine' | 'both'
export type DialogName = 'settings' | 'model' | 'key' | 'shortcuts' | null

export interface Notice {
  readonly id: number
  readonly text: string
  readonly undo?: () => void
}

const NOTICE_MS = 8000
const NARROW = '(max-width: 1099px)'

export class App {
  readonly settings: Signal<Settings>
  readonly view = signal<View>('chat')
  readonly dialog = signal<DialogName>(null)
  readonly isDrawerOpen = signal(false)
  readonly notices = signal<readonly Notice[]>([])
  readonly announcement = signal('')
  readonly isNarrow = signal(false)
  /** Counted up to put the cursor where the user writes. */
  readonly focusComposer = signal(0)
  readonly conversations: Conversations
  readonly engines: Engines
  readonly answers: Answers
  readonly feed: EngineFeed
  private readonly storage: PageStorage
  private noticeId = 0

  constructor() {
    const lasting = findStorage(() => localStorage)
    const ofTab = withoutFailing(findStorage(() => sessionStorage))
    this.storage = withoutFailing(lasting)
    this.settings = signal(loadSettings(this.storage))
    this.conversations = new Conversations(lasting, ofTab, line => this.notify(line))
    this.engines = new Engines(
      new ServerKey(ofTab),
      this.storage,
      () => this.settings.value.tabBackend,
      line => this.notify(line),
    )
    this.answers = new Answers(
      this.conversations,
      this.settings,
      () => this.engines.active.value,
      line => this.announce(line),
      line => this.notify(line),
      engine => this.feed.record(engine),
    )
    const isWatched = computed(() => this.view.value !== 'chat' || this.answers.live.value.size > 0)
    this.feed = new EngineFeed(this.engines.active, isWatched)
  }

  async start(): Promise<void> {
    effect(() => saveSettings(this.storage, this.settings.value))
    this.followTheme()
    this.followAddress()
    this.followWidth()
    addEventListener('pagehide', () => {
      for (const answer of this.answers.live.value.values()) answer.leave()
      this.conversations.leave()
    })
    const store = await ConversationStore.open(() => void this.conversations.refresh())
    if (!store.isLasting)
      this.notify('This browser stores no data for this page: conversations are lost when you close it.')
    await Promise.all([this.conversations.load(store), this.engines.start()])
    const { value } = this.engines.server
    if (value.status === 'failed' && value.failure.kind === 'unauthorized') this.dialog.value = 'key'
  }

  show(view: View): void {
    location.hash = view === 'chat' ? '' : view
    this.view.value = view
  }

  change(fields: Partial<Settings>): void {
    this.settings.value = { ...this.settings.value, ...fields }
  }

  notify(text: string, undo?: () => void): void {
    if (this.notices.value.some(notice => notice.text === text)) return
    const id = ++this.noticeId
    this.notices.value = [...this.notices.value.slice(-2), { id, text, undo }]
    setTimeout(() => this.dismiss(id), NOTICE_MS)
  }

  dismiss(id: number): void {
    this.notices.value = this.notices.value.filter(notice => notice.id !== id)
  }

  /** Puts the cursor where conversations are searched. */
  search(): void {
    this.isDrawerOpen.value = true
    requestAnimationFrame(() => document.querySelector<HTMLInputElement>('.search input')?.focus())
  }

  announce(line: string): void {
    this.announcement.value = line
  }

  newChat(): void {
    this.conversations.begin(this.settings.value.system)
    if (this.view.value === 'engine') this.show('chat')
    this.isDrawerOpen.value = false
  }

  private followTheme(): void {
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const apply = () => {
      const { theme } = this.settings.value
      document.documentElement.dataset.theme = theme === 'system' ? (dark.matches ? 'dark' : 'light') : theme
    }
    dark.addEventListener('change', apply)
    effect(apply)
  }

  private followAddress(): void {
    const read = () => {
      const name = location.hash.slice(1)
      this.view.value = name === 'engine' || name === 'both' ? name : 'chat'
    }
    addEventListener('hashchange', read)
    read()
  }

  /** Side by side needs room: on a narrow screen the engine alone is shown in its place. */
  private followWidth(): void {
    const narrow = matchMedia(NARROW)
    const read = () => {
      this.isNarrow.value = narrow.matches
    }
    narrow.addEventListener('change', read)
    read()
  }
}

export const AppContext = createContext<App | null>(null)

export function useApp(): App {
  const app = useContext(AppContext)
  if (app === null) throw new Error('no app in context')
  return app
}
