// Writes a file from its start to its end in large pieces, one being written while the next is filled. Past the page
// cache where the system allows it: that is faster for gigabytes, and a model that was just written is then cold, as a
// benchmark wants it.
import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { alignedSharedBuffer } from './nodeReaders.js'
import { DIRECT_ALIGNMENT } from './readMode.js'

const CHUNK_BYTES = 8 << 20

export class ChunkWriter {
  private readonly chunks = [alignedSharedBuffer(CHUNK_BYTES), alignedSharedBuffer(CHUNK_BYTES)]
  private chunk = new Uint8Array(this.chunks[0]) // being filled
  private filled = 0
  private written = 0
  private writing: Promise<unknown> = Promise.resolve()

  private constructor(private readonly handle: FileHandle) {}

  static async create(path: string): Promise<ChunkWriter> {
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC
    const handle = await open(path, flags | (constants.O_DIRECT ?? 0)).catch(() => open(path, flags))
    return new ChunkWriter(handle)
  }

  get size(): number {
    return this.written + this.filled
  }

  async append(bytes: Uint8Array): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      const count = Math.min(bytes.length - done, CHUNK_BYTES - this.filled)
      this.chunk.set(bytes.subarray(done, done + count), this.filled)
      this.filled += count
      done += count
      if (this.filled === CHUNK_BYTES) await this.flush(CHUNK_BYTES)
    }
  }

  /** Zeros up to a multiple of `alignment`. */
  async pad(alignment: number): Promise<void> {
    const missing = -this.size & (alignment - 1)
    if (missing > 0) await this.append(new Uint8Array(missing))
  }

  async finish(): Promise<void> {
    const size = this.size
    const tail = Math.ceil(this.filled / DIRECT_ALIGNMENT) * DIRECT_ALIGNMENT
    this.chunk.fill(0, this.filled, tail)
    if (tail > 0) await this.flush(tail)
    await this.writing
    await this.handle.truncate(size)
    await this.handle.sync()
    await this.handle.close()
  }

  async discard(): Promise<void> {
    await this.writing.catch(() => {})
    await this.handle.close()
  }

  private async flush(count: number): Promise<void> {
    const full = this.chunk
    const at = this.written
    await this.writing
    this.writing = writeAll(this.handle, full.subarray(0, count), at)
    this.writing.catch(() => {}) // seen where it is awaited
    this.written += count
    this.chunk = new Uint8Array(this.chunks[full.buffer === (this.chunks[0] as unknown) ? 1 : 0])
    this.filled = 0
  }
}

async function writeAll(handle: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let done = 0; done < bytes.length; ) {
    done += (await handle.write(bytes, done, bytes.length - done, position + done)).bytesWritten
  }
}
