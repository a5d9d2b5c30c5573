// Times as people write them: '200ms', '5s', '10m', '1h30m'; a bare number is seconds.

const UNITS_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

/** Milliseconds; null where it is no such time. */
export function parseDuration(text: string): number | null {
  const time = text.trim()
  if (/^\d+(\.\d+)?$/.test(time)) return Number(time) * 1000
  if (!/^(\d+(\.\d+)?\s*(ms|s|m|h)\s*)+$/.test(time)) return null
  const parts = time.matchAll(/([\d.]+)\s*(ms|s|m|h)/g)
  return [...parts].reduce((sum, [, count, unit]) => sum + Number(count) * UNITS_MS[unit], 0)
}
