// One file of experts as a byte source: each expert is a record that is fetched with one request when it is first read,
// and read from the browser's storage from then on. A stored expert that was damaged is fetched again. What the server sent
// is stored at once: whoever finds that it is not what it should be says so, and it is forgotten.
import { ReadError } from '../errors.js'
import type { ByteSource } from '../storage/byteSource.js'
import type { SourceHome } from './pieceSource.js'
import type { RecordStore } from './recordStore.js'
import type { ExpertTraffic } from './webFolder.js'

export interface RecordLayout {
  readonly recordBytes: number
  readonly firstKey: number // of the file's first record in the store
  readonly store: RecordStore | null
  readonly version: string // of the file
}

export class RecordSource implements ByteSource {
  readonly name: string

  constructor(
    private readonly path: string,
    readonly size: number,
    private readonly records: RecordLayout,
    private readonly home: SourceHome & { readonly traffic: ExpertTraffic },
  ) {
    this.name = home.fetcher.url(path)
  }

  async read(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted()
    const { recordBytes, firstKey, store } = this.records
    if (offset < 0 || offset + target.length > this.size) {
      throw new ReadError(this.name, offset, target.length, `the read goes past the file's ${this.size} bytes`)
    }
    if (target.length !== recordBytes || offset % recordBytes !== 0) return await this.readPart(offset, target, signal)
    const key = firstKey + offset / recordBytes
    const { fetcher, cache, traffic } = this.home
    if (await store?.read(key, target)) {
      traffic.cacheReads++
      traffic.cacheBytes += recordBytes
      return
    }
    await fetcher.range(this.path, this.size, offset, target, { signal })
    traffic.networkReads++
    traffic.networkBytes += recordBytes
    await cache?.store(() => store?.write(key, target))
  }

  /** A sample of a file without checksums, which tells one model from another; small, and kept as it is. */
  private async readPart(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    const { fetcher, cache } = this.home
    const name = `part-${this.path}@${offset}+${target.length} of ${this.records.version}`
    const stored = await cache?.readFile(name)
    if (stored?.length === target.length) {
      target.set(stored)
      return
    }
    await fetcher.range(this.path, this.size, offset, target, { signal })
    await cache?.writeFile(name, target)
  }

  forget(offset: number, size: number): void {
    const { recordBytes, firstKey, store } = this.records
    const first = Math.floor(offset / recordBytes)
    store?.drop(firstKey + first, firstKey + Math.ceil((offset + size) / recordBytes))
  }

  async close(): Promise<void> {}
}
