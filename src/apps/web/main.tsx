// Starts the page.
import { render } from 'preact'
import { AppView } from './appView.js'
import { App, AppContext } from './state/app.js'
import { listenForShortcuts } from './state/shortcuts.js'

const app = new App()
const root = document.getElementById('app') as HTMLElement
root.replaceChildren()
render(
  <AppContext.Provider value={app}>
    <AppView />
  </AppContext.Provider>,
  root,
)
listenForShortcuts(app)
void app.start()
void registerServiceWorker()

/**
 * Installs the service worker. Where the host does not isolate the page, the worker does from the next load on: so the
 * page is loaded once more, before anything was typed or begun.
 */
const RELOADED_KEY = 'moeflux.isolated'

async function registerServiceWorker(): Promise<void> {
  const { serviceWorker } = navigator
  if (!serviceWorker) return
  try {
    const wasControlled = serviceWorker.controller !== null
    await serviceWorker.register(new URL('sw.js', document.baseURI), {
      scope: new URL('./', document.baseURI).pathname,
    })
    if (crossOriginIsolated || wasControlled || sessionStorage.getItem(RELOADED_KEY) !== null) return
    await serviceWorker.ready
    sessionStorage.setItem(RELOADED_KEY, 'yes')
    if (document.querySelector<HTMLTextAreaElement>('#composer')?.value) return
    location.reload()
  } catch (error) {
    console.warn('The page cannot be stored for offline use:', error)
  }
}
