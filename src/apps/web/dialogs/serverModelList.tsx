// The models that the server has: one is in use, another can be; loading shows how far it is and can be stopped.
import type { OfferedModel } from '../engines/hubClient.js'
import { useApp } from '../state/app.js'
import * as format from '../ui/format.js'
import { Choice } from './choice.js'
import { modelFacts } from './modelFacts.js'

export function ServerModelList() {
  const app = useApp()
  const { engines } = app
  const server = engines.server.value
  const hub = engines.serverModels.hub.value
  const isGone = server.status === 'failed' || server.status === 'lost'
  return (
    <section class="model-section" aria-label="On the server">
      <h3>On the server</h3>
      {isGone && (
        <div class="row">
          <p class="problem">{server.failure.message}</p>
          {server.failure.kind === 'unauthorized' ? (
            <button type="button" class="button" onClick={() => (app.dialog.value = 'key')}>
              Enter the key
            </button>
          ) : (
            <button type="button" class="button" onClick={() => void engines.connect()}>
              Try again
            </button>
          )}
        </div>
      )}
      {server.status === 'connecting' && <p class="hint">Looking for it …</p>}
      {!isGone && hub && (
        <ul class="model-list">
          {hub.models.map(model => (
            <ServerModelRow key={model.id} model={model} />
          ))}
        </ul>
      )}
    </section>
  )
}

const STATES = { loaded: 'in memory', loading: 'being loaded', unloading: 'being unloaded', unloaded: null }

function ServerModelRow({ model }: { model: OfferedModel }) {
  const app = useApp()
  const { engines } = app
  const server = engines.server.value
  const isActive =
    engines.place.value === 'server' && server.status === 'ready' && server.engine.shape.model === model.id
  const { progress } = model
  const share = progress && progress.total > 0 ? progress.loaded / progress.total : null
  const act = (work: Promise<void>) => void work.catch(error => app.notify(String(error.message)))
  const facts = [
    STATES[model.state],
    modelFacts(model, model.state === 'loaded'),
    model.contextLength && `context of ${format.count(model.contextLength)} tokens`,
  ]
  return (
    <li class={`model-row${isActive ? ' chosen' : ''}`}>
      <span class={`state ${model.state === 'loaded' ? 'ready' : model.state === 'loading' ? 'busy' : ''}`} />
      <div class="model-about">
        <h4>{model.id}</h4>
        <p>{facts.filter(Boolean).join(' · ')}</p>
      </div>
      {model.state === 'loading' ? (
        <button type="button" class="button" onClick={() => act(engines.serverModels.stop(model.id))}>
          Stop
        </button>
      ) : (
        <Choice isChosen={isActive} onChoose={() => act(engines.useServerModel(model.id))} />
      )}
      {model.state === 'loading' && (
        <div class="model-more">
          <progress max={1} value={share ?? undefined} aria-label={`Loading ${model.id}`} />
          <p role="status">
            {progress ? `${capital(progress.phase)} ${share === null ? '' : `${Math.floor(share * 100)}%`}` : 'Waiting'}
          </p>
        </div>
      )}
      {model.problem !== null && model.state !== 'loading' && (
        <p class="problem model-more" role="alert">
          {model.problem}
        </p>
      )}
    </li>
  )
}

function capital(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`
}
