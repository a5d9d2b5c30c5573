// How much there is of a value, without writing it out.

/** About how many characters a value has as JSON, each value in it counted as some. */
export function roughSize(value: unknown): number {
  if (typeof value === 'string') return 16 + value.length
  if (value === null || typeof value !== 'object') return 16
  let size = 16
  if (Array.isArray(value)) for (const item of value) size += roughSize(item)
  else for (const key in value) size += key.length + roughSize((value as Record<string, unknown>)[key])
  return size
}
