// Models that the server does not have yet: well-known ones, and any of the hub by its name. What one takes is asked before it
// is downloaded; a download shows how far it is, goes on when the page is closed, and can be stopped and taken up again.
import { useState } from 'preact/hooks'
import type { KnownModel } from '../engines/hubClient.js'
import { useApp } from '../state/app.js'
import { diskLack, modelFacts } from './modelFacts.js'
import { PullOffer } from './pullOffer.js'
import { PullProgress } from './pullProgress.js'

const SHOWN = 4 // before all are asked for

export function MoreModels() {
  const { engines } = useApp()
  const hub = engines.serverModels.hub.value
  const [isAll, setAll] = useState(false)
  if (hub === null || (hub.known.length === 0 && hub.pulls.length === 0)) return null
  const isPulled = ({ hub: id, name }: KnownModel) => hub.pulls.some(pull => pull.name === id || pull.name === name)
  const known = hub.known
    .filter(model => !isPulled(model))
    .sort((a, b) => rank(a, hub.freeDisk) - rank(b, hub.freeDisk) || (a.bytes ?? 0) - (b.bytes ?? 0))
  const shown = isAll ? known : known.slice(0, SHOWN)
  return (
    <section class="model-section" aria-label="More models">
      <h3>More models</h3>
      <ul class="model-list">
        {hub.pulls.map(pull => (
          <PullProgress key={pull.name} pull={pull} title={titleOf(hub.known, pull.name)} />
        ))}
        {shown.map(model => (
          <KnownRow key={model.hub} model={model} canPull={hub.canPull} freeDisk={hub.freeDisk} />
        ))}
      </ul>
      {shown.length < known.length && (
        <button type="button" class="link more-link" onClick={() => setAll(true)}>
          Show {known.length - shown.length} more
        </button>
      )}
      {hub.canPull ? (
        <OtherModel />
      ) : (
        <p class="hint">
          This server downloads nothing for its pages. Its operator can, with <code>moeflux pull NAME</code>, or allow
          it with <code>--allow-pull</code>.
        </p>
      )}
    </section>
  )
}

/** What runs well here comes first, and of that what is downloaded soonest. */
function rank({ fits, diskBytes }: KnownModel, freeDisk: number | null): number {
  if (diskLack(diskBytes, freeDisk) !== null) return 4
  return fits === null ? 2 : { everything: 0, streaming: 1, no: 3 }[fits]
}

function titleOf(known: readonly KnownModel[], name: string): string {
  return known.find(model => model.hub === name || model.name === name)?.title ?? name
}

interface KnownRowProps {
  readonly model: KnownModel
  readonly canPull: boolean
  readonly freeDisk: number | null
}

function KnownRow({ model, canPull, freeDisk }: KnownRowProps) {
  const [isOpen, setOpen] = useState(false)
  const lack = diskLack(model.diskBytes, freeDisk)
  const facts = lack ?? (modelFacts(model) || 'the hub knows its size')
  return (
    <li class="model-row absent">
      <div class="model-about">
        <h4>{model.title}</h4>
        <p>
          {model.name} · {facts}
          {model.unfinishedBytes > 0 && ' · partly downloaded'}
        </p>
      </div>
      {canPull && !isOpen && lack === null && (
        <button type="button" class="button" onClick={() => setOpen(true)} aria-label={`Get ${model.title}`}>
          Get
        </button>
      )}
      {isOpen && <PullOffer name={model.hub} onCancel={() => setOpen(false)} />}
    </li>
  )
}

/** Any other model of the hub. */
function OtherModel() {
  const [name, setName] = useState('')
  const [asked, setAsked] = useState<string | null>(null)
  return (
    <form
      class="other-model"
      onSubmit={event => {
        event.preventDefault()
        if (name.trim() !== '') setAsked(name.trim())
      }}
    >
      <label class="field">
        <span>Another model of the hub</span>
        <span class="row">
          <input
            type="text"
            placeholder="owner/name, or owner/name:Q4_K_M"
            autocomplete="off"
            spellcheck={false}
            value={name}
            onInput={event => setName(event.currentTarget.value)}
          />
          <button type="submit" class="button" disabled={name.trim() === ''}>
            Look
          </button>
        </span>
      </label>
      {asked !== null && <PullOffer key={asked} name={asked} onCancel={() => setAsked(null)} />}
    </form>
  )
}
