// A download: how far it is, how long it may take, and its end.
import type { Pull } from '../engines/hubClient.js'
import { useApp } from '../state/app.js'
import * as format from '../ui/format.js'

export function PullProgress({ pull, title }: { pull: Pull; title: string }) {
  const app = useApp()
  const { serverModels } = app.engines
  const { name, state, progress, problem } = pull
  const isRunning = state === 'running'
  const act = (work: Promise<void>) => void work.catch(error => app.notify(String(error.message)))
  return (
    <li class="model-row absent">
      <div class="model-about">
        <h4>{title}</h4>
        <p role="status">{words(pull, serverModels.rate(name))}</p>
      </div>
      {isRunning ? (
        <button type="button" class="button" onClick={() => act(serverModels.stop(name))}>
          Stop
        </button>
      ) : (
        <button type="button" class="button" onClick={() => act(serverModels.pull(name))}>
          {state === 'failed' ? 'Try again' : 'Go on'}
        </button>
      )}
      {isRunning && (
        <progress
          class="model-more"
          max={1}
          value={progress && progress.total > 0 ? progress.loaded / progress.total : undefined}
          aria-label={`Downloading ${name}`}
        />
      )}
      {problem !== null && (
        <p class="problem model-more" role="alert">
          {problem}
        </p>
      )}
    </li>
  )
}

function words({ state, progress }: Pull, rate: number | null): string {
  if (progress === null) return state === 'running' ? 'Asking the hub' : 'Stopped'
  const { phase, loaded, total } = progress
  if (state !== 'running') return `Stopped at ${format.bytes(loaded)} of ${format.bytes(total)}; the download is kept`
  const parts = [
    phase === 'download' ? 'Downloading' : 'Packing',
    `${format.bytes(loaded)} of ${format.bytes(total)}`,
    rate && phase === 'download' ? `${format.bytes(rate)}/s` : null,
    rate ? `about ${format.timeLeft((total - loaded) / rate)} left` : null,
  ]
  return parts.filter(part => part !== null).join(' · ')
}
