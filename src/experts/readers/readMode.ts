// Buffered or direct reads of experts. Buffered reads keep a copy in the system's page cache, which serves the next read
// when there is memory for it. When there is not, the kernel's read-ahead fetches many times what is needed and every
// page pushes out another: then reads that go past the cache (O_DIRECT) are the better way.

export type ReadMode = 'auto' | 'direct' | 'buffered'

/** Offsets, sizes and addresses of direct reads are multiples of this; every filesystem accepts it. */
export const DIRECT_ALIGNMENT = 4096

export interface ReadModeFacts {
  readonly wanted: ReadMode
  readonly expertSize: number
  readonly expertBytes: number // of all experts on disk
  readonly freeBytes: number // memory that stays free beside the expert slots
  readonly supported: boolean // whether the platform has direct reads
}

export interface ReadModeChoice {
  readonly direct: boolean
  readonly reason: string
}

export function chooseReadMode(facts: ReadModeFacts): ReadModeChoice {
  if (facts.wanted === 'buffered') return { direct: false, reason: 'buffered reads were asked for' }
  if (!facts.supported) return { direct: false, reason: 'this platform has no direct reads' }
  if (facts.expertSize % DIRECT_ALIGNMENT !== 0) {
    const reason = `an expert of ${facts.expertSize} bytes is no multiple of ${DIRECT_ALIGNMENT}`
    return { direct: false, reason }
  }
  if (facts.wanted === 'direct') return { direct: true, reason: 'direct reads were asked for' }
  const gigabytes = (bytes: number) => `${(bytes / 1e9).toFixed(1)} GB`
  const sizes = `${gigabytes(facts.expertBytes)} of experts, ${gigabytes(facts.freeBytes)} of memory free for a page cache`
  return { direct: facts.expertBytes > facts.freeBytes, reason: sizes }
}
