/** Milliseconds on one clock for all threads: `performance.now()` begins with each thread. */
export function now(): number {
  return performance.timeOrigin + performance.now()
}
