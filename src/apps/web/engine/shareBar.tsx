// A whole cut into named parts: one bar, and beside each name its number and share, so that no colour has to be told apart.
import * as format from '../ui/format.js'

export interface SharePart {
  readonly key: string
  readonly name: string
  readonly value: number
  readonly note?: string
}

export function ShareBar({ label, parts }: { label: string; parts: readonly SharePart[] }) {
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
