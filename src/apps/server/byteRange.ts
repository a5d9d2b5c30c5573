// The Range header: one range of bytes of a file. Several ranges, other units and nonsense count as no range at all, as
// HTTP allows; a range that has no byte of the file is refused.

export interface ByteRange {
  readonly start: number
  readonly end: number // the byte after the last one
}

export function byteRange(header: string | undefined, size: number): ByteRange | 'whole' | 'unsatisfiable' {
  const match = /^\s*bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*$/i.exec(header ?? '')
  if (match === null) return 'whole'
  const [, first, last] = match
  if (first === '' && last === '') return 'whole'
  if (first === '') {
    const length = Math.min(Number(last), size)
    return length === 0 ? 'unsatisfiable' : { start: size - length, end: size }
  }
  const start = Number(first)
  if (last !== '' && Number(last) < start) return 'whole'
  if (start >= size) return 'unsatisfiable'
  return { start, end: last === '' ? size : Math.min(Number(last) + 1, size) }
}
