// The resident part of a model as a byte source: a file on a server that is kept in pieces of one size as it arrives. A
// read takes what is stored and fetches the rest, each run of missing pieces with one request, no piece twice.
import { ReadError } from '../../base/errors.js'
import type { RangeFetcher } from '../rangeFetcher.js'
import type { ByteSource } from '../source.js'
import type { ModelCache } from './modelCache.js'
import type { RecordStore } from './recordStore.js'
import { sendsWholeFiles, WholeFile } from './wholeFile.js'

const PIECE = 2 ** 20
const RECENT_PIECES = 8 // kept in memory: small tensors that lie in one piece are read one by one

export interface SourceHome {
  readonly fetcher: RangeFetcher
  readonly cache: ModelCache | null
  /** The host sends no parts of files. */
  onWholeFiles(): void
}

interface Expected {
  readonly piece: number
  resolve(bytes: Uint8Array): void
  reject(error: unknown): void
}

export class PieceSource implements ByteSource {
  readonly name: string
  private readonly recent = new Map<number, Uint8Array>() // in order of use, oldest first
  private readonly fetching = new Map<number, Promise<Uint8Array>>() // by piece
  private readonly expected: Expected[] = [] // ascending; asked for in a moment
  private readonly whole: WholeFile | null

  private constructor(
    private readonly file: string,
    readonly size: number,
    private readonly home: SourceHome,
    private readonly store: RecordStore | null,
  ) {
    this.name = home.fetcher.url(file)
    const { cache, fetcher } = home
    this.whole =
      store !== null && cache?.writable
        ? new WholeFile({ path: file, size, recordBytes: PIECE, firstKey: 0, store, cache, fetcher })
        : null
  }

  static async open(file: string, size: number, home: SourceHome): Promise<PieceSource> {
    return new PieceSource(file, size, home, (await home.cache?.openRecords(storeName(file), PIECE)) ?? null)
  }

  /** Drops what is stored of a file. */
  static async forget(file: string, cache: ModelCache): Promise<void> {
    const store = await cache.openRecords(storeName(file), PIECE)
    store?.drop(0, Number.POSITIVE_INFINITY)
    store?.close()
  }

  async read(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted()
    const end = offset + target.length
    if (offset < 0 || end > this.size) {
      throw new ReadError(this.name, offset, target.length, `the read goes past the file's ${this.size} bytes`)
    }
    const pieces: (Uint8Array | Promise<Uint8Array>)[] = []
    const first = Math.floor(offset / PIECE)
    for (let piece = first; piece * PIECE < end; piece++) {
      const bytes = await this.stored(piece)
      pieces.push(bytes ?? this.fetching.get(piece) ?? this.expect(piece))
    }
    this.fetchExpected(signal)
    for (const [i, waiting] of pieces.entries()) {
      const piece = first + i
      const bytes = await waiting
      const from = Math.max(offset, piece * PIECE)
      const to = Math.min(end, piece * PIECE + bytes.length)
      target.set(bytes.subarray(from - piece * PIECE, to - piece * PIECE), from - offset)
    }
  }

  forget(offset: number, size: number): void {
    const [first, end] = [Math.floor(offset / PIECE), Math.ceil((offset + size) / PIECE)]
    for (let piece = first; piece < end; piece++) this.recent.delete(piece)
    this.store?.drop(first, end)
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

  /** A piece that will be fetched; whoever wants it meanwhile waits for the same. */
  private expect(piece: number): Promise<Uint8Array> {
    const waiting = new Promise<Uint8Array>((resolve, reject) => this.expected.push({ piece, resolve, reject }))
    waiting.catch(() => {}) // seen by those who wait for it
    this.fetching.set(piece, waiting)
    return waiting
  }

  /** One request for each run of expected pieces. */
  private fetchExpected(signal?: AbortSignal): void {
    const expected = this.expected.splice(0)
    for (let i = 0; i < expected.length; ) {
      let count = 1
      while (expected[i + count]?.piece === expected[i].piece + count) count++
      void this.fetchRun(expected.slice(i, i + count), signal)
      i += count
    }
  }

  /** Pieces are handed on and stored one by one, as they are whole: a break costs less than one. */
  private async fetchRun(run: readonly Expected[], signal?: AbortSignal): Promise<void> {
    const begin = run[0].piece * PIECE
    const bytes = new Uint8Array(Math.min(this.size, begin + run.length * PIECE) - begin)
    const { cache, fetcher } = this.home
    let done = 0
    const onProgress = (got: number) => {
      while (done < run.length && got >= done * PIECE + this.lengthOf(run[done].piece)) {
        const { piece, resolve, reject } = run[done]
        const content = bytes.slice(done * PIECE, done * PIECE + this.lengthOf(piece))
        done++
        this.fetching.delete(piece)
        const stored = cache?.store(() => this.store?.write(piece, content)) ?? Promise.resolve()
        void stored.then(() => resolve(this.keep(piece, content)), reject)
      }
    }
    try {
      await fetcher.range(this.file, this.size, begin, bytes, { signal, onProgress })
    } catch (error) {
      const left = run.slice(done)
      if (this.whole !== null && sendsWholeFiles(error)) return await this.fetchWhole(left, this.whole, signal)
      for (const { piece, reject } of left) {
        this.fetching.delete(piece)
        reject(error)
      }
    }
  }

  private async fetchWhole(run: readonly Expected[], whole: WholeFile, signal?: AbortSignal): Promise<void> {
    this.home.onWholeFiles()
    const take = async ({ piece, resolve, reject }: Expected) => {
      try {
        resolve(this.keep(piece, await whole.record(piece, signal)))
      } catch (error) {
        reject(error)
      } finally {
        this.fetching.delete(piece)
      }
    }
    await Promise.all(run.map(take))
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

function storeName(file: string): string {
  return `pieces-${file.replaceAll('/', '%2F')}`
}
