// Sizes and times as people write them: '6GB' is 6·10⁹ bytes, '6GiB' is 6·2³⁰, '1h30m' is 5,400
// seconds. Pure.
import { OptionError } from './errors.js'

const UNIT_BYTES = new Map([
  ['', 1],
  ['b', 1],
  ['kb', 1e3],
  ['mb', 1e6],
  ['gb', 1e9],
  ['tb', 1e12],
  ['kib', 2 ** 10],
  ['mib', 2 ** 20],
  ['gib', 2 ** 30],
  ['tib', 2 ** 40],
])

/** Whole bytes; a bare number is bytes. Throws an OptionError that names the option. */
export function parseByteSize(value: number | string, option: string): number {
  const want = "a size like '6GB' (6·10⁹), '512MiB' (512·2²⁰) or a number of bytes"
  const match = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(String(value))
  const unit = match ? UNIT_BYTES.get(match[2].toLowerCase()) : undefined
  if (!match || unit === undefined) throw new OptionError(option, value, want)
  const bytes = Math.floor(Number(match[1]) * unit)
  if (!Number.isSafeInteger(bytes)) throw new OptionError(option, value, want)
  return bytes
}

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

/**
 * Milliseconds of '200ms', '5s', '10m' or '1h30m'; a bare number is seconds. Null: it is no such
 * time.
 */
export function parseDuration(text: string): number | null {
  const time = text.trim()
  if (/^\d+(\.\d+)?$/.test(time)) return Number(time) * 1000
  if (!/^(\d+(\.\d+)?\s*(ms|s|m|h)\s*)+$/.test(time)) return null
  const parts = time.matchAll(/([\d.]+)\s*(ms|s|m|h)/g)
  return [...parts].reduce((sum, [, count, unit]) => sum + Number(count) * UNIT_MS[unit], 0)
}
