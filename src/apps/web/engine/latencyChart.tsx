// How long reads of experts took, in steps of twice the time: the shape of a disk, and of what else it does.
import { latencyBoundMs } from '#moeflux/apps/browser/page.js'
import { latencyShare } from '../state/engineHistory.js'
import * as format from '../ui/format.js'

export function LatencyChart({ latency, wastedBytes }: { latency: readonly number[]; wastedBytes: number }) {
  const reads = latency.reduce((sum, count) => sum + count, 0)
  const first = latency.findIndex(count => count > 0)
  const last = latency.findLastIndex(count => count > 0)
  const most = Math.max(...latency, 1)
  const usual = reads > 0 ? `half of them within ${ms(latencyShare(latency, 0.5))}` : 'none so far'
  const slow = reads > 0 ? `, 99 of 100 within ${ms(latencyShare(latency, 0.99))}` : ''
  return (
    <>
      <div class="latency" role="img" aria-label={`${format.count(reads)} reads, ${usual}${slow}`}>
        {latency.slice(Math.max(0, first), last + 1).map((count, i) => (
          <div key={`${first + i}`} class="latency-step">
            <i class="latency-bar" style={{ height: `${(count / most) * 100}%` }} />
            <small>{ms(latencyBoundMs(first + i))}</small>
          </div>
        ))}
      </div>
      <p class="panel-note">
        {format.count(reads)} reads, {usual}
        {slow}; {format.bytes(wastedBytes)} read ahead for nothing
      </p>
    </>
  )
}

function ms(value: number): string {
  return value < 1000 ? `${Number(value.toPrecision(2))} ms` : `${Number((value / 1000).toPrecision(2))} s`
}
