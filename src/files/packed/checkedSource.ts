// A byte source whose bytes are compared with their checksums before anybody gets them. What does not match is read again
// a few times, because a file may be in the middle of being written; then the read fails, as it does on a broken disk.
// Ranges may begin and end anywhere: a block of which only a part is wanted is read whole.
import { ChecksumError } from '../../base/errors.js'
import { ReadTries } from '../readRetries.js'
import type { ByteSource } from '../source.js'
import { type Block, type BlockChecksums, blocksOf } from './blockChecksums.js'
import { blockHash } from './blockHash.js'

const KEPT_EDGES = 8 // blocks: small tensors lie in one, and are read one by one

export class CheckedSource implements ByteSource {
  readonly name: string
  readonly path?: string
  readonly size: number
  readonly joinsReads: boolean
  private readonly edges = new Map<number, Uint8Array>() // sound blocks by where they begin, oldest first

  /** `file`: which of the table's. */
  constructor(
    private readonly source: ByteSource,
    private readonly checksums: BlockChecksums,
    private readonly file: number,
  ) {
    this.name = source.name
    this.path = source.path
    this.size = source.size
    this.joinsReads = source.joinsReads ?? false
  }

  async read(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    const end = offset + target.length
    const tries = new ReadTries()
    for (;;) {
      await this.source.read(offset, target, signal)
      const damaged = await this.findDamage(offset, target, signal)
      if (damaged === null) return
      this.source.forget?.(damaged.at, damaged.size)
      const pauseMs = tries.failed()
      if (pauseMs === null) throw new ChecksumError(this.name, offset, end - offset)
      await new Promise(resolve => setTimeout(resolve, pauseMs))
    }
  }

  async close(): Promise<void> {
    this.edges.clear()
    await this.source.close()
  }

  private async findDamage(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<Block | null> {
    const end = offset + target.length
    for (const block of blocksOf(this.checksums, this.file, offset, target.length)) {
      const { at, size } = block
      if (at >= offset && at + size <= end) {
        if (blockHash(target.subarray(at - offset, at - offset + size)) !== block.sum) return block
        continue
      }
      const bytes = this.edges.get(at) ?? (await this.readEdge(block, signal))
      if (bytes === null) return block
      // What was checked is what is handed out.
      const from = Math.max(at, offset)
      target.set(bytes.subarray(from - at, Math.min(at + size, end) - at), from - offset)
    }
    return null
  }

  private async readEdge({ at, size, sum }: Block, signal?: AbortSignal): Promise<Uint8Array | null> {
    const bytes = new Uint8Array(size)
    await this.source.read(at, bytes, signal)
    if (blockHash(bytes) !== sum) return null
    this.edges.set(at, bytes)
    if (this.edges.size > KEPT_EDGES) this.edges.delete(this.edges.keys().next().value as number)
    return bytes
  }
}
