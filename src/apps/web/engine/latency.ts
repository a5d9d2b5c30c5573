// The histogram of read times that the engine counts, by steps of twice the time.
import { latencyBoundMs } from '#moeflux/apps/browser/page.js'

/** Milliseconds that so large a share of the reads took at most: the upper end of a step. */
export function latencyShare(latency: readonly number[], share: number): number {
  const reads = latency.reduce((sum, count) => sum + count, 0)
  let seen = 0
  const step = latency.findIndex(count => {
    seen += count
    return seen >= share * reads
  })
  return latencyBoundMs(Math.max(0, step))
}
