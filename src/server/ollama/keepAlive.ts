// How long a model stays in memory after a request, as ollama's clients say it: seconds, or a time like '5m' or '1h30m'. Below zero
// means for ever.
const UNITS_MS: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

/** Milliseconds; null where it is no such time. */
export function keepAliveMs(time: number | string): number | null {
  const seconds = time === '' ? Number.NaN : Number(time)
  const ms = Number.isNaN(seconds) ? unitsMs(String(time)) : seconds * 1000
  return ms !== null && ms < 0 ? Number.POSITIVE_INFINITY : ms
}

function unitsMs(time: string): number | null {
  if (!/^[+-]?(\d+(\.\d+)?(ms|s|m|h))+$/.test(time)) return null
  const parts = [...time.matchAll(/([\d.]+)(ms|s|m|h)/g)]
  const ms = parts.reduce((sum, [, count, unit]) => sum + Number(count) * UNITS_MS[unit], 0)
  return time.startsWith('-') ? -ms : ms
}
