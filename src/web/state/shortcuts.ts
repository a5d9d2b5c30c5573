// Keys that work anywhere on the page.
import type { App } from './app.js'

export interface Shortcut {
  readonly keys: string // for people
  readonly code: string // KeyboardEvent.code
  readonly label: string
  act(app: App): void
}

export const SHORTCUTS: readonly Shortcut[] = [
  { keys: 'Alt+N', code: 'KeyN', label: 'New chat', act: app => app.newChat() },
  { keys: 'Alt+C', code: 'KeyC', label: 'Show the chat', act: app => app.show('chat') },
  { keys: 'Alt+E', code: 'KeyE', label: 'Show the engine', act: app => app.show('engine') },
  { keys: 'Alt+B', code: 'KeyB', label: 'Show both', act: app => app.show('both') },
  { keys: 'Alt+M', code: 'KeyM', label: 'Choose a model', act: app => void (app.dialog.value = 'model') },
  { keys: 'Alt+S', code: 'KeyS', label: 'Settings', act: app => void (app.dialog.value = 'settings') },
  { keys: 'Alt+K', code: 'KeyK', label: 'Search conversations', act: app => app.search() },
]

export function listenForShortcuts(app: App): void {
  addEventListener('keydown', event => {
    if (!event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || app.dialog.value !== null) return
    const shortcut = SHORTCUTS.find(({ code }) => code === event.code)
    if (!shortcut) return
    event.preventDefault()
    shortcut.act(app)
  })
}
