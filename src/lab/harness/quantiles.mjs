/** Count, a few quantiles and the maximum, to a tenth; null where there are no values. */
export function quantiles(values) {
  const sorted = Float64Array.from(values).sort()
  const round = value => (value === undefined ? null : Math.round(value * 10) / 10)
  const at = share => round(sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))])
  return { count: sorted.length, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: round(sorted.at(-1)) }
}
