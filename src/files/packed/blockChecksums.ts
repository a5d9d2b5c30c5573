// Checksums of the large files of a packed folder, block by block, so that what is read is checked when it is read: an
// expert is a few blocks, and readers that take an expert in pieces check each of them. Reads and writes the file that
// holds them (byte layout in docs/formats.md) and compares; where bytes come from is not known here.
import { FormatError } from '../../base/errors.js'
import { blockHash } from './blockHash.js'

const MAGIC = 0x4858464d // 'MFXH'
const VERSION = 1
const HEADER_BYTES = 32

/** How files are cut: each is `records` records of one size, each record a run of blocks of which the last may be shorter. */
export interface BlockShape {
  readonly files: number
  readonly records: number // per file
  readonly recordBytes: number
  readonly blockBytes: number
}

/** Can be posted to another thread. */
export interface BlockChecksums extends BlockShape {
  readonly sums: BigUint64Array // [files, records, blocks]: of each block
}

export interface Block {
  readonly at: number // in the file, bytes
  readonly size: number
  readonly sum: bigint
}

// A GPU's reader takes an expert in so many pieces, by threads of their own, each of a size at which a disk is still fast.
const MOST_BLOCKS = 4
const LEAST_BLOCK = 256 << 10
const PAGE = 4096 // where reads past the page cache may begin

/** Blocks of an expert: pieces that readers read at once. */
export function expertBlockBytes(expertSize: number): number {
  const count = Math.max(1, Math.min(MOST_BLOCKS, Math.floor(expertSize / LEAST_BLOCK)))
  return count === 1 ? expertSize : Math.ceil(expertSize / count / PAGE) * PAGE
}

/** Blocks of the resident part, whose tensors begin anywhere: small, for what is read twice at their edges. */
export const WEIGHTS_BLOCK_BYTES = 64 << 10

export function blocksPerRecord({ recordBytes, blockBytes }: BlockShape): number {
  return Math.ceil(recordBytes / blockBytes)
}

/** The blocks of a file that a range touches, in order. */
export function* blocksOf(table: BlockChecksums, file: number, offset: number, length: number): Generator<Block> {
  const { records, recordBytes, blockBytes, sums } = table
  const perRecord = blocksPerRecord(table)
  for (let at = offset; at < offset + length; ) {
    const record = Math.floor(at / recordBytes)
    const block = Math.floor((at - record * recordBytes) / blockBytes)
    const begin = record * recordBytes + block * blockBytes
    const end = Math.min(begin + blockBytes, (record + 1) * recordBytes)
    yield { at: begin, size: end - begin, sum: sums[(file * records + record) * perRecord + block] }
    at = end
  }
}

/** Sums up bytes of a file that come one after the other. */
export class BlockSummer {
  private readonly sums: bigint[] = []
  private readonly block: Uint8Array
  private filled = 0
  private inRecord = 0 // bytes of the present record that are in earlier blocks

  constructor(private readonly shape: Pick<BlockShape, 'recordBytes' | 'blockBytes'>) {
    this.block = new Uint8Array(Math.min(shape.blockBytes, shape.recordBytes))
  }

  push(bytes: Uint8Array): void {
    for (let done = 0; done < bytes.length; ) {
      const size = Math.min(this.shape.blockBytes, this.shape.recordBytes - this.inRecord)
      const part = bytes.subarray(done, done + size - this.filled)
      this.block.set(part, this.filled)
      this.filled += part.length
      done += part.length
      if (this.filled < size) return
      this.sums.push(blockHash(this.block.subarray(0, size)))
      this.filled = 0
      this.inRecord = (this.inRecord + size) % this.shape.recordBytes
    }
  }

  /** Of all bytes, which must be whole records. */
  finish(): BigUint64Array {
    if (this.filled > 0 || this.inRecord > 0) throw new Error('the last record is not whole')
    return BigUint64Array.from(this.sums)
  }
}

export function formatChecksums(table: BlockChecksums): Uint8Array {
  const { files, records, recordBytes, blockBytes, sums } = table
  const bytes = new Uint8Array(HEADER_BYTES + sums.length * 8)
  const view = new DataView(bytes.buffer)
  for (const [i, value] of [MAGIC, VERSION, files, records].entries()) view.setUint32(i * 4, value, true)
  view.setBigUint64(16, BigInt(recordBytes), true)
  view.setBigUint64(24, BigInt(blockBytes), true)
  bytes.set(new Uint8Array(sums.buffer, sums.byteOffset, sums.byteLength), HEADER_BYTES)
  return bytes
}

/** The checksums of files of this shape, or of any; how a record is cut into blocks the file itself says. */
export function parseChecksums(
  bytes: Uint8Array,
  want: Omit<BlockShape, 'blockBytes'> | null,
  name: string,
): BlockChecksums {
  const bad = (detail: string) => new FormatError('BAD_CHECKSUMS', name, detail)
  if (bytes.length < HEADER_BYTES) throw bad(`${bytes.length} bytes, the header has ${HEADER_BYTES}`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const [magic, version, files, records] = [0, 4, 8, 12].map(at => view.getUint32(at, true))
  if (magic !== MAGIC) throw bad('is no file of checksums')
  if (version !== VERSION) throw new FormatError('UNKNOWN_VERSION', name, `version ${version}, want ${VERSION}`)
  const recordBytes = Number(view.getBigUint64(16, true))
  const blockBytes = Number(view.getBigUint64(24, true))
  const got = { files, records, recordBytes }
  for (const field of ['files', 'records', 'recordBytes'] as const) {
    if (want !== null && got[field] !== want[field])
      throw bad(`is of ${got[field]} ${WORDS[field]}, the model has ${want[field]}`)
  }
  if (blockBytes < 1 || blockBytes > recordBytes) throw bad(`blocks of ${blockBytes} bytes in ${recordBytes}`)
  const shape = { ...got, blockBytes }
  const count = files * records * blocksPerRecord(shape)
  if (bytes.length !== HEADER_BYTES + count * 8) {
    throw bad(`${bytes.length} bytes, want ${HEADER_BYTES + count * 8} for ${count} blocks`)
  }
  // A copy, which lies where 64-bit words may; Node's Buffer would only pretend to make one with `slice`.
  return { ...shape, sums: new BigUint64Array(new Uint8Array(bytes.subarray(HEADER_BYTES)).buffer) }
}

const WORDS = { files: 'files', records: 'records a file', recordBytes: 'bytes a record' } as const
