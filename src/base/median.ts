/** The median, but of an even number of values the higher one in the middle, so that it is always one that was seen. */
export function middleOf(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[sorted.length >> 1]
}
