// Where experts are, where tokens found theirs, and which side computed them. Only where a GPU and memory share the work.
import type { EngineHistory } from '../state/engineHistory.js'
import * as format from '../ui/format.js'

export function TiersPanel({ history }: { history: EngineHistory }) {
  const tiers = history.frame?.stats.tiers
  if (!tiers) return null
  const { gpu, memory, disk } = tiers
  const inMemory = history.resident.reduce((sum, bit) => sum + bit, 0)
  const slots = ({ used, slots }: { used: number; slots: number }) =>
    `${format.count(used)} of ${format.count(slots)} slots`
  return (
    <section class="panel tiers" aria-label="Tiers">
      <h2>Experts on the GPU, in memory and on disk</h2>
      <div class="tiers-bars">
        <ShareBar
          label="Where they are"
          parts={[
            { key: 'gpu', name: 'GPU', value: gpu.used, note: slots(gpu) },
            { key: 'memory', name: 'memory alone', value: Math.max(0, inMemory - gpu.used), note: slots(memory) },
            { key: 'disk', name: 'disk alone', value: history.resident.length - inMemory },
          ]}
        />
        <ShareBar
          label="Where tokens found theirs"
          parts={[
            { key: 'gpu', name: 'GPU', value: gpu.hits },
            { key: 'memory', name: 'memory', value: memory.hits },
            { key: 'disk', name: 'disk', value: disk.hits },
          ]}
        />
        <ShareBar
          label="Who computed them"
          parts={[
            { key: 'gpu', name: 'GPU', value: tiers.computedOnGpu },
            { key: 'memory', name: 'processors', value: tiers.computedOnCpu },
          ]}
        />
      </div>
      <p class="panel-note">
        Went to the GPU: {format.count(tiers.promotions)} because they are used often, {format.count(tiers.uploads)} for
        prompts; read again after they left it: {format.count(tiers.refills)}
      </p>
    </section>
  )
}

/** A whole cut into named parts: one bar, and beside each name its number and share, so that no colour has to be told apart. */
interface SharePart {
  readonly key: string
  readonly name: string
  readonly value: number
  readonly note?: string
}

function ShareBar({ label, parts }: { label: string; parts: readonly SharePart[] }) {
  const whole = parts.reduce((sum, { value }) => sum + value, 0)
  const share = (value: number) => (whole > 0 ? value / whole : 0)
  return (
    <div class="shares">
      <h3>{label}</h3>
      <div class="share-bar" aria-hidden="true">
        {parts.map(({ key, value }) => (
          <i key={key} class={`tier-${key}`} style={{ flexGrow: share(value) }} />
        ))}
      </div>
      <dl class="share-list">
        {parts.map(({ key, name, value, note }) => (
          <div key={key}>
            <dt>
              <i class={`share-mark tier-${key}`} aria-hidden="true" />
              {name}
            </dt>
            <dd>
              {format.count(value)} <small>{note ?? (whole > 0 ? format.percent(share(value)) : '–')}</small>
            </dd>
          </div>
        ))}
      </dl>
    </div>
  )
}
