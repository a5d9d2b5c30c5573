// How long answers waited for the shared store, read from the metrics of servers between two looks: how many waited, how many
// of them within which time, and the longest.

const BUCKET = /^moeflux_store_wait_seconds_bucket\{tier="shared",le="([^"]+)"\} (\S+)$/gm
const LONGEST = /^moeflux_store_longest_wait_seconds\{tier="shared"\} (\S+)$/m
const RESTORED = /^moeflux_store_bytes_total\{tier="shared",direction="read"\} (\S+)$/m

export class StoreWaits {
  before = new Map() // process id → buckets

  /** Waits since the last look, of servers that are there now: `{pid, url}`. */
  async look(servers) {
    const within = new Map()
    let longest = 0
    let bytes = 0
    for (const { pid, url } of servers) {
      const text = await fetch(`${url}/metrics`).then(
        response => response.text(),
        () => '',
      )
      const known = this.before.get(pid) ?? new Map()
      const now = new Map()
      for (const [, bound, count] of text.matchAll(BUCKET)) {
        now.set(bound, Number(count))
        within.set(bound, (within.get(bound) ?? 0) + Number(count) - (known.get(bound) ?? 0))
      }
      this.before.set(pid, now)
      longest = Math.max(longest, Number(LONGEST.exec(text)?.[1] ?? 0))
      bytes += Number(RESTORED.exec(text)?.[1] ?? 0)
    }
    return { waits: within.get('+Inf') ?? 0, within, longestMs: Math.round(longest * 1000), bytes }
  }
}
