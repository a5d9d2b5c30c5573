// Starts the page.
import { render } from 'preact'
import { AppView } from './appView.js'
import { registerServiceWorker } from './registerServiceWorker.js'
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
