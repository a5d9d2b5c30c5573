// The resident part of a model as a byte source: a file on a server that is kept in pieces of one size as it arrives. A
// read takes what is stored and fetches the rest, each run of missing pieces with one request.
import { ReadError } from '../errors.js'
import type { ByteSource } from '../storage/byteSource.js'
import type { ModelCache } from './modelCache.js'
import type { RangeFetcher } from './rangeFetcher.js'
import type { RecordStore } from './recordStore.js'

const PIECE = 2 ** 20
const RECENT_PIECES = 32 // kept in memory: small tensors that lie in one piece are read one by one

export interface SourceHome {
  readonly fetcher: RangeFetcher
  readonly cache: ModelCache | null
}

export class PieceSource implements ByteSource {
  readonly name: string
  private readonly recent = new Map<number, Uint8Array>() // in order of use, oldest first

  private constructor(
    private readonly path: string,
    readonly size: number,
    private readonly home: SourceHome,
    private readonly store: RecordStore | null,
  ) {
    this.name = home.fetcher.url(path)
  }

  static async open(path: string, size: number, home: SourceHome): Promise<PieceSource> {
    return new PieceSource(path, size, home, (await home.cache?.openRecords(storeName(path), PIECE)) ?? null)
  }

  /** Drops what is stored of a file. */
  static async forget(path: string, cache: ModelCache): Promise<void> {
    const store = await cache.openRecords(storeName(path), PIECE)
    store?.drop(0, Number.POSITIVE_INFINITY)
    store?.close()
  }

  async read(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted()
    const end = offset + target.length
    if (offset < 0 || end > this.size) {
      throw new ReadError(this.name, offset, target.length, `the read goes past the file's ${this.size} bytes`)
    }
    const put = (piece: number, bytes: Uint8Array) => {
      const from = Math.max(offset, piece * PIECE)
      const to = Math.min(end, piece * PIECE + bytes.length)
      target.set(bytes.subarray(from - piece * PIECE, to - piece * PIECE), from - offset)
    }
    const missing: number[] = []
    for (let piece = Math.floor(offset / PIECE); piece * PIECE < end; piece++) {
      const bytes = await this.stored(piece)
      if (bytes === null) missing.push(piece)
      else put(piece, bytes)
    }
    for (let i = 0; i < missing.length; ) {
      let count = 1
      while (missing[i + count] === missing[i] + count) count++
      await this.fetchPieces(missing[i], count, put, signal)
      i += count
    }
  }

  async close(): Promise<void> {
    this.recent.clear()
  }

  private async stored(piece: number): Promise<Uint8Array | null> {
    const recent = this.recent.get(piece)
    if (recent !== undefined) return recent
    if (!this.store?.has(piece)) return null
    const bytes = new Uint8Array(this.lengthOf(piece))
    return (await this.store.read(piece, bytes)) ? this.keep(piece, bytes) : null
  }

  /** Pieces are handed on and stored one by one, as they are whole: a break costs less than one. */
  private async fetchPieces(
    first: number,
    count: number,
    put: (piece: number, bytes: Uint8Array) => void,
    signal?: AbortSignal,
  ): Promise<void> {
    const begin = first * PIECE
    const bytes = new Uint8Array(Math.min(this.size, begin + count * PIECE) - begin)
    const stored: Promise<void>[] = []
    let done = 0
    const onProgress = (got: number) => {
      while (done < count && got >= done * PIECE + this.lengthOf(first + done)) {
        const piece = first + done++
        const content = bytes.subarray((piece - first) * PIECE, (piece - first) * PIECE + this.lengthOf(piece))
        put(piece, this.keep(piece, content))
        const { cache } = this.home
        if (cache !== null) stored.push(cache.store(() => this.store?.write(piece, content)))
      }
    }
    try {
      await this.home.fetcher.range(this.path, this.size, begin, bytes, { signal, onProgress })
    } finally {
      await Promise.all(stored)
    }
  }

  private keep(piece: number, bytes: Uint8Array): Uint8Array {
    this.recent.delete(piece)
    this.recent.set(piece, bytes)
    if (this.recent.size > RECENT_PIECES) this.recent.delete(this.recent.keys().next().value as number)
    return bytes
  }

  private lengthOf(piece: number): number {
    return Math.min(PIECE, this.size - piece * PIECE)
  }
}

function storeName(path: string): string {
  return `pieces-${path.replaceAll('/', '%2F')}`
}
