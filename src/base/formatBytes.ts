// Sizes as people read them, in messages as on the screens of the command line. Pure.

const DECIMAL = ['B', 'kB', 'MB', 'GB', 'TB'] as const

/** '1.77 MB', '217 GB': three digits that matter, units of 1000 like disk makers and the model tables. */
export function formatBytes(bytes: number): string {
  let unit = 0
  let value = bytes
  while (Math.abs(value) >= 999.5 && unit < DECIMAL.length - 1) {
    value /= 1000
    unit++
  }
  return `${unit === 0 ? String(Math.round(value)) : threeDigits(value)} ${DECIMAL[unit]}`
}

/** '12.3', '0.52', '1240': for rates and ratios. */
export function threeDigits(value: number): string {
  const size = Math.abs(value)
  if (size >= 99.95) return value.toFixed(0)
  if (size >= 9.995) return value.toFixed(1)
  return value.toFixed(2)
}

/** 'needs 223 GB of disk, 41.0 GB are free'. */
export function diskLack(needed: number, free: number): string {
  const [want, got] = [formatBytes(needed), formatBytes(free)]
  const rest = want === got ? `${formatBytes(needed - free)} more than are free` : `${got} are free`
  return `needs ${want} of disk, ${rest}`
}
