// Reads rows of a matrix out of a source, in the order of the matrix, whatever order they lie in.
import type { Slice } from './sourceMatrix.js'

/** Rows that lie apart by at most this many are read in one go, with what lies between them. */
const MOST_WASTE = 4

export type ReadRows = (row: number, count: number, signal?: AbortSignal) => Promise<Uint8Array>

/** What it gives is overwritten by the next call; `buffer` holds a block's rows. */
export function rowReader(
  slice: Slice,
  rowBytes: number,
  buffer: ArrayBuffer,
  rowOf?: (row: number) => number,
): ReadRows {
  const readRange = (row: number, target: Uint8Array, signal?: AbortSignal) =>
    slice.source.read(slice.offset + row * rowBytes, target, signal)
  return async (row, count, signal) => {
    const target = new Uint8Array(buffer, 0, count * rowBytes)
    if (rowOf === undefined) {
      await readRange(row, target, signal)
      return target
    }
    for (let at = 0; at < count; ) {
      const { first, rows, span } = nearRows(rowOf, row + at, count - at)
      const bytes =
        span === rows ? target.subarray(at * rowBytes, (at + rows) * rowBytes) : new Uint8Array(span * rowBytes)
      await readRange(first, bytes, signal)
      for (let i = 0; span !== rows && i < rows; i++) {
        const from = (rowOf(row + at + i) - first) * rowBytes
        target.set(bytes.subarray(from, from + rowBytes), (at + i) * rowBytes)
      }
      at += rows
    }
    return target
  }
}

/** As many rows from `row` on as lie in rising order, near each other. */
function nearRows(rowOf: (row: number) => number, row: number, most: number) {
  const first = rowOf(row)
  let last = first
  let rows = 1
  while (rows < most) {
    const next = rowOf(row + rows)
    if (next <= last || next - last > MOST_WASTE) break
    last = next
    rows++
  }
  return { first, rows, span: last - first + 1 }
}
