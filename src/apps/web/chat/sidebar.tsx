// The list of conversations: search, rename, delete, export, import.
import { useRef, useState } from 'preact/hooks'
import { useApp } from '../state/app.js'
import { type Conversation, matches } from '../state/conversation.js'
import { fromJson, ImportError, toJson, toMarkdown } from '../state/conversationFile.js'
import { Icon, type IconName, Logo } from '../ui/icons.js'
import { MenuButton } from '../ui/menuButton.js'

const DAY_MS = 86_400_000
const THEMES = { system: ['auto', 'as the system'], light: ['sun', 'light'], dark: ['moon', 'dark'] } as const
const NEXT_THEME = { system: 'light', light: 'dark', dark: 'system' } as const

export function Sidebar() {
  const app = useApp()
  const [query, setQuery] = useState('')
  const shown = app.conversations.all.value.filter(({ messages }) => messages.length > 0)
  const found = query.trim() === '' ? shown : shown.filter(conversation => matches(conversation, query))
  const { theme } = app.settings.value
  const [icon, name] = THEMES[theme]
  return (
    <nav class={`sidebar${app.isDrawerOpen.value ? ' open' : ''}`} aria-label="Conversations">
      <div class="sidebar-head">
        <Logo />
        <span class="wordmark">moeflux</span>
        <button
          type="button"
          class="icon-button drawer-close"
          aria-label="Close the list"
          onClick={() => (app.isDrawerOpen.value = false)}
        >
          <Icon name="close" />
        </button>
      </div>
      <button type="button" class="new-chat" onClick={() => app.newChat()}>
        <Icon name="plus" />
        New chat
      </button>
      <div class="search">
        <Icon name="search" size={16} />
        <input
          type="search"
          placeholder="Search"
          aria-label="Search conversations"
          value={query}
          onInput={event => setQuery(event.currentTarget.value)}
        />
      </div>
      <div class="conversation-list">
        {found.length === 0 && <p class="empty">{query === '' ? 'Nothing here yet.' : 'Nothing found.'}</p>}
        {groups(found).map(([title, list]) => (
          <section key={title} aria-label={title}>
            <h2>{title}</h2>
            <ul>
              {list.map(conversation => (
                <ConversationRow key={conversation.id} conversation={conversation} />
              ))}
            </ul>
          </section>
        ))}
      </div>
      <div class="sidebar-foot">
        <ImportExport />
        <span class="grow" />
        <button
          type="button"
          class="icon-button"
          aria-label={`Colours: ${name}. Change`}
          title={`Colours: ${name}`}
          onClick={() => app.change({ theme: NEXT_THEME[theme] })}
        >
          <Icon name={icon as IconName} />
        </button>
        <button
          type="button"
          class="icon-button"
          aria-label="Keyboard shortcuts"
          title="Keyboard shortcuts"
          onClick={() => (app.dialog.value = 'shortcuts')}
        >
          <Icon name="keyboard" />
        </button>
        <button
          type="button"
          class="icon-button"
          aria-label="Settings"
          title="Settings"
          onClick={() => (app.dialog.value = 'settings')}
        >
          <Icon name="settings" />
        </button>
      </div>
    </nav>
  )
}

function ConversationRow({ conversation }: { conversation: Conversation }) {
  const app = useApp()
  const [title, setTitle] = useState<string | null>(null)
  const isCurrent = app.conversations.currentId.value === conversation.id
  const isLive = app.answers.live.value.has(conversation.id)
  const rename = () => {
    const wanted = title?.trim()
    if (wanted) {
      app.conversations.update(conversation.id, current => ({ ...current, title: wanted.slice(0, 200), titled: true }))
    }
    setTitle(null)
  }
  if (title !== null) {
    return (
      <li>
        <input
          class="rename"
          aria-label="Title of the conversation"
          value={title}
          ref={element => element?.focus()}
          onInput={event => setTitle(event.currentTarget.value)}
          onBlur={rename}
          onKeyDown={event => {
            if (event.key === 'Enter') rename()
            if (event.key === 'Escape') setTitle(null)
          }}
        />
      </li>
    )
  }
  return (
    <li class={`conversation${isCurrent ? ' current' : ''}`}>
      <button
        type="button"
        class="conversation-title"
        aria-current={isCurrent ? 'page' : undefined}
        onClick={() => {
          app.conversations.show(conversation.id)
          app.isDrawerOpen.value = false
          if (app.view.value === 'engine') app.show('chat')
        }}
      >
        {isLive && <span class="pulse" role="img" aria-label="being answered" />}
        {conversation.pinned && <Icon name="pin" size={14} />}
        {conversation.title}
      </button>
      <MenuButton
        label={`More for ${conversation.title}`}
        items={[
          {
            icon: 'pin',
            label: conversation.pinned ? 'Unpin' : 'Pin',
            act: () => app.conversations.update(conversation.id, current => ({ ...current, pinned: !current.pinned })),
          },
          { icon: 'edit', label: 'Rename', act: () => setTitle(conversation.title) },
          {
            icon: 'save',
            label: 'Export as Markdown',
            act: () => saveFile(`${conversation.title}.md`, 'text/markdown', toMarkdown(conversation)),
          },
          {
            icon: 'save',
            label: 'Export as JSON',
            act: () => saveFile(`${conversation.title}.json`, 'application/json', toJson([conversation])),
          },
          {
            icon: 'trash',
            label: 'Delete',
            isDangerous: true,
            act: () => {
              app.answers.stop(conversation.id)
              void app.conversations.remove([conversation.id])
              app.notify(`“${conversation.title}” was deleted.`, () => app.conversations.add([conversation]))
            },
          },
        ]}
      />
    </li>
  )
}

function ImportExport() {
  const app = useApp()
  const input = useRef<HTMLInputElement>(null)
  const read = async (file: File | undefined) => {
    if (!file) return
    try {
      const imported = fromJson(await file.text())
      app.conversations.add(imported)
      if (imported.length > 0) app.conversations.show(imported[0].id)
      app.notify(`Imported ${imported.length} ${imported.length === 1 ? 'conversation' : 'conversations'}.`)
    } catch (error) {
      app.notify(`${file.name} was not imported: ${error instanceof ImportError ? error.message : String(error)}.`)
    }
  }
  const exportAll = () => {
    const all = app.conversations.all.value.filter(({ messages }) => messages.length > 0)
    saveFile('moeflux-conversations.json', 'application/json', toJson(all))
  }
  return (
    <>
      <MenuButton
        label="Import and export"
        icon="save"
        items={[
          { icon: 'save', label: 'Export all as JSON', act: exportAll },
          { icon: 'open', label: 'Import …', act: () => input.current?.click() },
        ]}
      />
      <input
        ref={input}
        type="file"
        accept=".json,application/json"
        class="visually-hidden"
        aria-label="File to import"
        tabIndex={-1}
        onChange={event => {
          void read(event.currentTarget.files?.[0])
          event.currentTarget.value = ''
        }}
      />
    </>
  )
}

function groups(list: readonly Conversation[]): [string, Conversation[]][] {
  const today = new Date().setHours(0, 0, 0, 0)
  const nameOf = ({ pinned, updatedAt }: Conversation) => {
    if (pinned) return 'Pinned'
    if (updatedAt >= today) return 'Today'
    if (updatedAt >= today - DAY_MS) return 'Yesterday'
    if (updatedAt >= today - 7 * DAY_MS) return 'Last week'
    return 'Earlier'
  }
  const byName = new Map<string, Conversation[]>()
  const pinnedFirst = list.toSorted((a, b) => Number(b.pinned ?? false) - Number(a.pinned ?? false))
  for (const conversation of pinnedFirst) {
    const name = nameOf(conversation)
    byName.set(name, [...(byName.get(name) ?? []), conversation])
  }
  return [...byName]
}

/** Hands a text to the user as a file. */
function saveFile(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }))
  const link = document.createElement('a')
  link.href = url
  link.download = name.replace(/[\\/:*?"<>|\p{Cc}]+/gu, ' ').trim() || 'conversation'
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}
