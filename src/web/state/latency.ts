// The histogram of read times that the engine counts: step i has the reads that took less than 2^i / 8 ms, and no less
// than those of the step before.

/** Milliseconds that the reads of a step took at most. */
export function latencyTop(step: number): number {
  return 2 ** step / 8
}

/** Milliseconds that so large a share of the reads took at most: the upper end of a step. */
export function latencyShare(latency: readonly number[], share: number): number {
  const reads = latency.reduce((sum, count) => sum + count, 0)
  let seen = 0
  const step = latency.findIndex(count => {
    seen += count
    return seen >= share * reads
  })
  return latencyTop(Math.max(0, step))
}
