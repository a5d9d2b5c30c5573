// Numbers for people.

export function bytes(count: number): string {
  if (count < 1000) return `${Math.round(count)} B`
  const units = ['kB', 'MB', 'GB', 'TB']
  let value = count / 1000
  let unit = 0
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000
    unit++
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`
}

export function count(value: number): string {
  return Math.round(value).toLocaleString('en')
}

/** 12,345 as 12.3k. */
export function compact(value: number): string {
  return value < 1000
    ? count(value)
    : Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 }).format(value)
}

export function seconds(value: number): string {
  if (value < 10) return `${value.toFixed(1)} s`
  if (value < 60) return `${Math.round(value)} s`
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`
}

/** No more precise than a guess can be. */
export function timeLeft(seconds: number): string {
  if (seconds < 60) return `${Math.max(1, Math.ceil(seconds))} s`
  return seconds < 5400 ? `${Math.ceil(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`
}

export function rate(tokens: number, time: number): string | null {
  if (tokens < 2 || time <= 0) return null
  return speed(tokens / time)
}

export function speed(tokensPerSecond: number): string {
  return `${tokensPerSecond < 10 ? tokensPerSecond.toFixed(1) : Math.round(tokensPerSecond)} tok/s`
}

export function percent(share: number): string {
  return `${(share * 100).toFixed(share > 0.995 && share < 1 ? 2 : 1)}%`
}

export function clock(time: number): string {
  return new Date(time).toLocaleTimeString([], { hour12: false })
}
