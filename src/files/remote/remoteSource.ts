// One file on a server as a byte source, in pieces of one size that are fetched when they are first read and kept on the
// disk. Reads of experts are whole pieces; a read of the resident part is many, of which a few are fetched at once.
import { setMaxListeners } from 'node:events'
import { ReadError } from '../../base/errors.js'
import type { DiskCache } from '../pieces/diskCache.js'
import type { RangeFetcher } from '../rangeFetcher.js'
import type { ByteSource } from '../source.js'

const AT_ONCE = 4

export interface RemoteFile {
  readonly path: string // on the server
  readonly size: number
  readonly pieceBytes: number
  readonly cacheName: string // of its pieces' folder: another version of the file has another
}

export class RemoteSource implements ByteSource {
  readonly name: string
  readonly size: number
  private readonly fetching = new Map<number, Promise<Uint8Array>>()

  constructor(
    private readonly file: RemoteFile,
    private readonly fetcher: RangeFetcher,
    private readonly cache: DiskCache | null,
  ) {
    this.name = fetcher.url(file.path)
    this.size = file.size
  }

  async read(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted()
    if (signal) setMaxListeners(0, signal) // many reads wait for one end
    const end = offset + target.length
    if (offset < 0 || end > this.size) {
      throw new ReadError(this.name, offset, target.length, `the read goes past the file's ${this.size} bytes`)
    }
    const { pieceBytes } = this.file
    let next = Math.floor(offset / pieceBytes)
    const last = Math.ceil(end / pieceBytes)
    const work = async () => {
      for (let piece = next++; piece < last; piece = next++) {
        const bytes = await this.piece(piece, signal)
        const from = Math.max(0, offset - piece * pieceBytes)
        const to = Math.min(bytes.length, end - piece * pieceBytes)
        target.set(bytes.subarray(from, to), piece * pieceBytes + from - offset)
      }
    }
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, last - next) }, work))
  }

  forget(offset: number, size: number): void {
    const { pieceBytes } = this.file
    for (let piece = Math.floor(offset / pieceBytes); piece * pieceBytes < offset + size; piece++) {
      void this.cache?.remove(this.pieceName(piece))
    }
  }

  async close(): Promise<void> {}

  /** No piece is fetched twice at once. Who leaves does not stop those that wait for the same. */
  private async piece(piece: number, signal?: AbortSignal): Promise<Uint8Array> {
    let fetching = this.fetching.get(piece)
    if (fetching === undefined) {
      fetching = this.load(piece, signal).finally(() => this.fetching.delete(piece))
      this.fetching.set(piece, fetching)
      return await fetching
    }
    return await fetching.catch(() => this.piece(piece, signal))
  }

  private async load(piece: number, signal?: AbortSignal): Promise<Uint8Array> {
    const { path, size, pieceBytes } = this.file
    const begin = piece * pieceBytes
    const length = Math.min(pieceBytes, size - begin)
    const kept = await this.cache?.read(this.pieceName(piece), length)
    if (kept) return kept
    const bytes = new Uint8Array(length)
    await this.fetcher.range(path, size, begin, bytes, { signal })
    await this.cache?.write(this.pieceName(piece), bytes)
    return bytes
  }

  private pieceName(piece: number): string {
    return `${this.file.cacheName}/${piece}`
  }
}
