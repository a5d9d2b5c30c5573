// The conversations of this browser as signals: all of them, the one that is shown, and what is typed but not sent. Every
// change is kept in the store soon after, and in other tabs of the page.
import { computed, effect, type ReadonlySignal, signal } from '@preact/signals'
import { type Conversation, joined, newConversation } from './conversation.js'
import type { ConversationStore } from './conversationStore.js'
import type { PageStorage } from './pageStorage.js'
import { Unsaved } from './unsaved.js'
import { Drafts } from './unsentDrafts.js'

const SAVE_MS = 250
const CURRENT_KEY = 'moeflux.current'

export class Conversations {
  readonly all = signal<readonly Conversation[]>([])
  readonly currentId = signal<string | null>(null)
  readonly current: ReadonlySignal<Conversation | null> = computed(
    () => this.all.value.find(({ id }) => id === this.currentId.value) ?? null,
  )
  readonly drafts: Drafts
  private readonly left: Unsaved
  private readonly unsaved = new Set<string>()
  private saving: readonly string[] = []
  private readonly removed = new Set<string>()
  private readonly changes = new Map<string, number>() // when each was changed here last, by `clock`
  private clock = 0
  private store: ConversationStore | null = null
  private timer: ReturnType<typeof setTimeout> | null = null
  private written: Promise<void> = Promise.resolve()

  constructor(
    storage: PageStorage,
    /** Of this tab alone. */
    private readonly tabStorage: PageStorage,
    private readonly onWarning: (line: string) => void,
  ) {
    this.drafts = new Drafts(storage)
    this.left = new Unsaved(storage)
  }

  async load(store: ConversationStore): Promise<void> {
    this.store = store
    await this.refresh()
    for (const left of this.left.left()) {
      if (this.get(left.id) === null) this.add([left])
      else this.update(left.id, kept => joined(left, kept))
    }
    this.currentId.value ??= this.tabStorage.getItem(CURRENT_KEY)
    effect(() => this.tabStorage.setItem(CURRENT_KEY, this.currentId.value ?? ''))
  }

  /** Takes over what another tab has changed; what this one is changing stays as it is here. */
  async refresh(): Promise<void> {
    const begun = this.clock
    const kept = (await this.store?.all()) ?? []
    // What was read may be older than what was changed here since, or is just being written.
    const isOwn = ({ id, messages }: Conversation) =>
      messages.length === 0 || this.unsaved.has(id) || this.saving.includes(id) || (this.changes.get(id) ?? 0) > begun
    const byId = new Map(kept.map(conversation => [conversation.id, conversation]))
    const own = this.all.value.filter(isOwn).map(conversation => joined(conversation, byId.get(conversation.id)))
    const mine = new Set([...own.map(({ id }) => id), ...this.removed])
    this.all.value = [...own, ...kept.filter(({ id }) => !mine.has(id))].sort((a, b) => b.updatedAt - a.updatedAt)
  }

  get(id: string): Conversation | null {
    return this.all.value.find(conversation => conversation.id === id) ?? null
  }

  /** A new, empty conversation; one that is empty already is used again. */
  begin(system: string): Conversation {
    const empty = this.all.value.find(({ messages }) => messages.length === 0)
    const conversation = empty ? { ...empty, system: empty.system || system } : newConversation(system)
    this.all.value = [conversation, ...this.all.value.filter(({ id }) => id !== conversation.id)]
    this.currentId.value = conversation.id
    return conversation
  }

  show(id: string): void {
    this.currentId.value = id
  }

  update(id: string, change: (conversation: Conversation) => Conversation): void {
    this.all.value = this.all.value
      .map(conversation => (conversation.id === id ? change(conversation) : conversation))
      .sort((a, b) => b.updatedAt - a.updatedAt)
    this.save(id)
  }

  add(conversations: readonly Conversation[]): void {
    this.all.value = [...conversations, ...this.all.value].sort((a, b) => b.updatedAt - a.updatedAt)
    for (const { id } of conversations) this.save(id)
  }

  async remove(ids: readonly string[]): Promise<void> {
    this.all.value = this.all.value.filter(({ id }) => !ids.includes(id))
    for (const id of ids) {
      this.removed.add(id)
      this.unsaved.delete(id)
      this.drafts.clear(id)
    }
    if (this.current.value === null) this.currentId.value = null
    this.left.settle(ids)
    await this.store?.remove(ids)
  }

  /** The page goes: a write that begins now may not come to its end. */
  leave(): void {
    const ids = new Set([...this.unsaved, ...this.saving])
    const changed = this.all.value.filter(({ id, messages }) => ids.has(id) && messages.length > 0)
    if (changed.length > 0) this.left.leave(changed)
    void this.flush()
  }

  /** Writes at once what waits to be written. */
  async flush(): Promise<void> {
    if (this.timer) clearTimeout(this.timer)
    this.timer = null
    this.written = this.written.then(() => this.write()) // one write at a time
    await this.written
  }

  private async write(): Promise<void> {
    const changed = this.all.value.filter(({ id, messages }) => this.unsaved.has(id) && messages.length > 0)
    if (changed.length === 0) return
    this.saving = changed.map(({ id }) => id)
    this.unsaved.clear()
    try {
      await this.store?.put(changed)
      this.left.settle(this.saving.filter(id => !this.unsaved.has(id)))
    } catch (error) {
      for (const id of this.saving) if (!this.removed.has(id)) this.unsaved.add(id) // with the next change
      this.onWarning(`Conversations cannot be saved: ${error instanceof Error ? error.message : String(error)}`)
    } finally {
      this.saving = []
    }
  }

  private save(id: string): void {
    this.unsaved.add(id)
    this.removed.delete(id) // an undone deletion
    this.changes.set(id, ++this.clock)
    this.timer ??= setTimeout(() => void this.flush(), SAVE_MS)
  }
}
