// The bar above everything: which model answers, and what is shown.
import { useApp, type View } from './state/app.js'
import { Icon, type IconName } from './ui/icons.js'

const VIEWS: readonly (readonly [View, IconName, string])[] = [
  ['chat', 'chat', 'Chat'],
  ['engine', 'grid', 'Engine'],
  ['both', 'columns', 'Both'],
]

export function TopBar() {
  const app = useApp()
  const shown = app.isNarrow.value && app.view.value === 'both' ? 'engine' : app.view.value
  return (
    <header class="topbar">
      <button
        type="button"
        class="icon-button drawer-open"
        aria-label="Conversations"
        aria-expanded={app.isDrawerOpen.value}
        onClick={() => (app.isDrawerOpen.value = true)}
      >
        <Icon name="menu" />
      </button>
      <ModelButton />
      <span class="grow" />
      <div class="segments" role="tablist" aria-label="View">
        {VIEWS.filter(([view]) => view !== 'both' || !app.isNarrow.value).map(([view, icon, label]) => (
          <button
            key={view}
            type="button"
            role="tab"
            aria-selected={shown === view}
            class={shown === view ? 'selected' : ''}
            onClick={() => app.show(view)}
          >
            <Icon name={icon} size={16} />
            <span>{label}</span>
          </button>
        ))}
      </div>
    </header>
  )
}

function ModelButton() {
  const app = useApp()
  const { engines } = app
  const engine = engines.active.value
  const tab = engines.tab.value
  const server = engines.server.value
  const isTab = engines.place.value === 'tab'
  let label = 'Choose a model'
  let where = ''
  let state: 'ready' | 'busy' | 'bad' = 'busy'
  if (engine) {
    label = engine.shape.model
    where = engine.place === 'tab' ? 'in this tab' : engine.shape.isLoaded ? 'on the server' : 'not loaded yet'
    state = 'ready'
    if (!isTab && server.status === 'lost') {
      where = 'not reachable'
      state = 'bad'
    }
  } else if (isTab && tab.status === 'loading') {
    label = tab.entry.name
    const { loaded = 0, total = 0 } = tab.progress ?? {}
    where = total > 0 ? `loading, ${Math.floor((loaded / total) * 100)}%` : 'loading'
  } else if (isTab && tab.status === 'failed') {
    label = tab.entry.name
    where = 'could not be loaded'
    state = 'bad'
  } else if (!isTab && server.status === 'connecting') {
    label = 'Connecting'
  } else if (!isTab && server.status === 'failed') {
    label = server.failure.kind === 'unauthorized' ? 'Key needed' : 'Server not reachable'
    state = 'bad'
  }
  return (
    <button
      type="button"
      class="model-button"
      aria-haspopup="dialog"
      onClick={() => (app.dialog.value = 'model')}
      title="Choose the model and where it runs"
    >
      <span class={`state ${state}`} aria-hidden="true" />
      <span class="model-name">{label}</span>
      {where !== '' && <span class="model-place">{where}</span>}
      <Icon name="down" size={16} />
    </button>
  )
}
