// What a download would take and what the model would be like here, before it begins.
import { useEffect, useState } from 'preact/hooks'
import type { Forecast } from '../engines/hubClient.js'
import { useApp } from '../state/app.js'
import * as format from '../ui/format.js'
import { diskLack, modelFacts } from './modelFacts.js'

const COMMON_LINE = 100e6 / 8 // bytes per second

export function PullOffer({ name, onCancel }: { name: string; onCancel(): void }) {
  const { engines } = useApp()
  const [found, setFound] = useState<Forecast | null>(null)
  const [problem, setProblem] = useState<string | null>(null)
  const fail = (error: Error) => setProblem(error.message)
  useEffect(() => {
    engines.serverModels.forecast(name).then(setFound, fail)
  }, [name])
  const free = engines.serverModels.hub.value?.freeDisk ?? null
  const lack = found && diskLack(found.diskBytes, free)
  const isHere = found !== null && found.diskBytes === 0 // in the store, and not offered yet
  return (
    <div class="model-more pull-offer">
      {found === null && problem === null && <p role="status">Asking the hub …</p>}
      {problem !== null && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      {isHere && <p>The server has this model in its store.</p>}
      {found && !isHere && (
        <dl>
          <dt>Download</dt>
          <dd>
            {format.bytes(found.downloadBytes)}, about {format.timeLeft(found.downloadBytes / COMMON_LINE)} at 100
            Mbit/s
          </dd>
          <dt>Disk</dt>
          <dd>
            {format.bytes(found.diskBytes)} at most
            {found.bytes !== null && `, ${format.bytes(found.bytes)} packed`}
            {free !== null && `; ${format.bytes(free)} free`}
          </dd>
          <dt>Here</dt>
          <dd>{modelFacts({ ...found, bytes: null }) || 'not known before it is there'}</dd>
        </dl>
      )}
      {lack && <p class="problem">This model {lack}.</p>}
      <div class="row end">
        <button type="button" class="button quiet" onClick={onCancel}>
          Cancel
        </button>
        {found && !lack && (
          <button
            type="button"
            class="button primary"
            onClick={() => void engines.serverModels.pull(name).then(onCancel, fail)}
          >
            {isHere ? 'Add it' : 'Download'}
          </button>
        )}
      </div>
    </div>
  )
}
