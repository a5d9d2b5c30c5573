// The tensors of a GGUF file as the one safetensors file that a folder of the same model would have. It is nowhere: whoever
// reads some of its bytes gets them re-laid on the way. So all that packing does (resuming, checksums, memory) is the same
// for both.
import { FormatError, ReadError } from '../../base/errors.js'
import { blockFormat } from '../../model/blockFormats.js'
import { BLOCK_KEY } from '../convert/shardedModel.js'
import type { ByteSource } from '../source.js'
import type { NamedMatrix, NamedTensors, NamedVector } from './ggufTensors.js'
import { RELAY_GROUP } from './repackAffine.js'
import type { RelaidMatrix, RelaidRows } from './repackedMatrix.js'

type ReadBytes = (offset: number, target: Uint8Array, signal?: AbortSignal) => Promise<void>

interface Piece {
  readonly name: string
  readonly dtype: string
  readonly shape: readonly number[]
  readonly size: number
  readonly read: ReadBytes
}

export function relaidSource(name: string, tensors: NamedTensors, close: () => Promise<void>): ByteSource {
  const cache = new RowCache()
  const pieces = [
    ...tensors.matrices.flatMap(matrix => matrixPieces(matrix, cache)),
    ...tensors.vectors.map(vectorPiece),
  ]
  const header = formatHeader(pieces, tensors.matrices)
  const starts: number[] = []
  let size = header.byteLength
  for (const piece of pieces) {
    starts.push(size)
    size += piece.size
  }
  if (!Number.isSafeInteger(size))
    throw new FormatError('SHAPE_TOO_LARGE', name, 'has more than 2^53 bytes when re-laid')
  return {
    name,
    size,
    close,
    async read(offset, target, signal) {
      signal?.throwIfAborted()
      const end = offset + target.byteLength
      if (offset < 0 || end > size) {
        throw new ReadError(name, offset, target.byteLength, `the read goes past the ${size} bytes of the tensors`)
      }
      if (offset < header.byteLength) target.set(header.subarray(offset, Math.min(end, header.byteLength)))
      for (let i = lastBefore(starts, offset); i < pieces.length && starts[i] < end; i++) {
        const from = Math.max(offset, starts[i])
        const to = Math.min(end, starts[i] + pieces[i].size)
        if (from < to) await pieces[i].read(from - starts[i], target.subarray(from - offset, to - offset), signal)
      }
    },
  }
}

/** The rows that were re-laid last: their weights, scales and biases are asked for one after the other. */
class RowCache {
  private last: { matrix: RelaidMatrix; row: number; end: number; rows: RelaidRows } | null = null

  async rows(matrix: RelaidMatrix, row: number, end: number, signal?: AbortSignal) {
    const { last } = this
    if (last !== null && last.matrix === matrix && last.row <= row && end <= last.end) return last
    this.last = null // before the next ones are made, not after
    const made = { matrix, row, end, rows: await matrix.read(row, end - row, signal) }
    this.last = made
    return made
  }
}

function matrixPieces({ name, matrix, stack }: NamedMatrix, cache: RowCache): Piece[] {
  const { target, rows, cols, rowBytes } = matrix
  const shape = (width: number) => (stack === null ? [rows, width] : [stack, rows / stack, width])
  const piece = (part: keyof RelaidRows, dtype: string, width: number): Piece => {
    const bytes = rowBytes[part]
    return {
      name: `${name}.${part}`,
      dtype,
      shape: shape(width),
      size: rows * bytes,
      async read(offset, into, signal) {
        const row = Math.floor(offset / bytes)
        const end = Math.ceil((offset + into.byteLength) / bytes)
        const found = await cache.rows(matrix, row, end, signal)
        const start = offset - found.row * bytes
        into.set(found.rows[part].subarray(start, start + into.byteLength))
      },
    }
  }
  if (target.kind === 'plain') return [piece('weight', target.type, cols)]
  if (target.kind === 'blocks') {
    const { bits } = blockFormat(target.block)
    return [piece('weight', 'U32', (cols * bits) / 32), piece('scales', 'U8', rowBytes.scales)]
  }
  return [
    piece('weight', 'U32', (cols * target.bits) / 32),
    piece('scales', 'F16', cols / RELAY_GROUP),
    piece('biases', 'F16', cols / RELAY_GROUP),
  ]
}

function vectorPiece({ name, shape, read }: NamedVector): Piece {
  const size = shape.reduce((product, each) => product * each, 4)
  return {
    name,
    dtype: 'F32',
    shape,
    size,
    async read(offset, into) {
      const values = await read()
      into.set(new Uint8Array(values.buffer, values.byteOffset + offset, into.byteLength))
    },
  }
}

/** Metadata says which matrices are in blocks: types and shapes of safetensors cannot. */
function formatHeader(pieces: readonly Piece[], matrices: readonly NamedMatrix[]): Uint8Array {
  let end = 0
  const entries = pieces.map(({ name, dtype, shape, size }) => {
    const begin = end
    end += size
    return [name, { dtype, shape, data_offsets: [begin, end] }]
  })
  const blocks = matrices.flatMap(({ name, matrix: { target } }) =>
    target.kind === 'blocks' ? [[`${BLOCK_KEY}${name}`, `${target.block} ${target.span}`]] : [],
  )
  const metadata = { format: 'gguf', ...Object.fromEntries(blocks) }
  const json = JSON.stringify({ __metadata__: metadata, ...Object.fromEntries(entries) })
  const text = new TextEncoder().encode(json.padEnd(Math.ceil(json.length / 8) * 8))
  const header = new Uint8Array(8 + text.byteLength)
  new DataView(header.buffer).setBigUint64(0, BigInt(text.byteLength), true)
  header.set(text, 8)
  return header
}

/** Index of the last start that is not past `offset`; 0 where all are. */
function lastBefore(starts: readonly number[], offset: number): number {
  let low = 0
  let high = starts.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (starts[middle] <= offset) low = middle + 1
    else high = middle
  }
  return Math.max(0, low - 1)
}
