// The page: the list of conversations, the bar, the chosen views, and what lies above them.
import { ChatView } from './chat/chatView.js'
import { Sidebar } from './chat/sidebar.js'
import { KeyDialog } from './dialogs/keyDialog.js'
import { ModelDialog } from './dialogs/modelDialog.js'
import { SettingsDialog } from './dialogs/settingsDialog.js'
import { ShortcutsDialog } from './dialogs/shortcutsDialog.js'
import { LazyEngineView } from './engine/lazyEngineView.js'
import { useApp } from './state/app.js'
import { TopBar } from './topBar.js'
import { Icon } from './ui/icons.js'

const DIALOGS = { settings: SettingsDialog, model: ModelDialog, key: KeyDialog, shortcuts: ShortcutsDialog }

export function AppView() {
  const app = useApp()
  const view = app.isNarrow.value && app.view.value === 'both' ? 'engine' : app.view.value
  const dialog = app.dialog.value
  const OpenDialog = dialog === null ? null : DIALOGS[dialog]
  return (
    <>
      <button type="button" class="skip" onClick={skipToComposer}>
        Skip to the message field
      </button>
      <div class={`page view-${view}`}>
        <Sidebar />
        {app.isDrawerOpen.value && (
          <button
            type="button"
            class="scrim"
            aria-label="Close the list"
            tabIndex={-1}
            onClick={() => (app.isDrawerOpen.value = false)}
          />
        )}
        <div class="stage">
          <TopBar />
          <ConnectionBar />
          <main>
            {view !== 'engine' && <ChatView />}
            {view !== 'chat' && <LazyEngineView />}
          </main>
        </div>
      </div>
      {OpenDialog && <OpenDialog key={dialog} onClose={() => (app.dialog.value = null)} />}
      <div class="notices" role="status">
        {app.notices.value.map(({ id, text, undo }) => (
          <div key={id} class="notice">
            <span>{text}</span>
            {undo && (
              <button
                type="button"
                class="link"
                onClick={() => {
                  undo()
                  app.dismiss(id)
                }}
              >
                Undo
              </button>
            )}
            <button type="button" class="icon-button" aria-label="Dismiss" onClick={() => app.dismiss(id)}>
              <Icon name="close" size={16} />
            </button>
          </div>
        ))}
      </div>
      <div class="visually-hidden" aria-live="polite" aria-atomic="true">
        {app.announcement.value}
      </div>
    </>
  )
}

/** A button and no link: the part of the address after # is the name of a view. */
function skipToComposer(): void {
  document.querySelector<HTMLElement>('#composer, .heat-map')?.focus()
}

/** Says that the server went away, as long as it is away. It comes back by itself: the page keeps looking. */
function ConnectionBar() {
  const { engines } = useApp()
  const isLost = engines.place.value === 'server' && engines.server.value.status === 'lost'
  return (
    <div class={isLost ? 'connection' : 'visually-hidden'} role="status">
      {isLost && (
        <>
          <Icon name="alert" size={16} />
          <span>The server does not answer. Looking for it …</span>
          <button type="button" class="link" onClick={() => void engines.connect()}>
            Try now
          </button>
        </>
      )}
    </div>
  )
}
