// Keys that work anywhere on the page. Alt with a letter, but not on a Mac: there it writes é, ñ, ç and ß. Control and Shift
// with a letter mean nothing to a Mac and its browsers, elsewhere they mean much.
import type { App } from './app.js'

export interface Shortcut {
  readonly letter: string
  readonly label: string
  act(app: App): void
}

export const SHORTCUTS: readonly Shortcut[] = [
  { letter: 'N', label: 'New chat', act: app => app.newChat() },
  { letter: 'C', label: 'Show the chat', act: app => app.show('chat') },
  { letter: 'E', label: 'Show the engine', act: app => app.show('engine') },
  { letter: 'B', label: 'Show both', act: app => app.show('both') },
  { letter: 'M', label: 'Choose a model', act: app => void (app.dialog.value = 'model') },
  { letter: 'S', label: 'Settings', act: app => void (app.dialog.value = 'settings') },
  { letter: 'K', label: 'Search conversations', act: app => app.search() },
]

/** For people. */
export function keysOf({ letter }: Shortcut): string {
  return isMac() ? `Ctrl+Shift+${letter}` : `Alt+${letter}`
}

export function listenForShortcuts(app: App): void {
  addEventListener('keydown', event => {
    if (!isHeld(event) || app.dialog.value !== null) return
    const shortcut = SHORTCUTS.find(({ letter }) => event.code === `Key${letter}`)
    if (!shortcut) return
    event.preventDefault()
    shortcut.act(app)
  })
}

function isHeld({ altKey, ctrlKey, metaKey, shiftKey }: KeyboardEvent): boolean {
  if (metaKey) return false
  return isMac() ? ctrlKey && shiftKey && !altKey : altKey && !ctrlKey && !shiftKey
}

/** iPads call themselves Macs or not; their keyboards write the same. */
function isMac(): boolean {
  return /^(Mac|iP)/.test(navigator.platform)
}
