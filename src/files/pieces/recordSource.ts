// One file of experts as a byte source: each expert is a record that is fetched when it is first read, and read from the
// browser's storage from then on. Neighbours that are asked for in one moment are fetched with one request
// (recordRuns.ts). A stored expert that was damaged is fetched again. What the server sent is stored at once: whoever finds
// that it is not what it should be says so, and it is forgotten.
import { ReadError } from '../../base/errors.js'
import type { ByteSource } from '../source.js'
import type { SourceHome } from './pieceSource.js'
import { type RecordRun, recordRuns } from './recordRuns.js'
import type { RecordStore } from './recordStore.js'
import { sendsWholeFiles, WholeFile } from './wholeFile.js'

export interface RecordLayout {
  readonly recordBytes: number
  readonly firstKey: number // of the file's first record in the store
  readonly store: RecordStore | null
  readonly version: string // of the file
}

interface WantedRecord {
  readonly record: number // in the file
  readonly target: Uint8Array
  readonly signal: AbortSignal | undefined
  resolve(): void
  reject(error: unknown): void
}

/** Where experts came from, since the model was opened. */
export interface ExpertTraffic {
  networkReads: number
  networkBytes: number
  cacheReads: number
  cacheBytes: number
  /** Experts that nobody had asked for: they lay between two that were fetched with one request. */
  spareReads: number
  spareBytes: number
}

export class RecordSource implements ByteSource {
  readonly name: string
  readonly joinsReads = true
  private wanted: WantedRecord[] = [] // fetched in a moment, together with what comes until then

  private readonly whole: WholeFile | null

  constructor(
    private readonly file: string,
    readonly size: number,
    private readonly records: RecordLayout,
    private readonly home: SourceHome & { readonly traffic: ExpertTraffic },
  ) {
    this.name = home.fetcher.url(file)
    const { cache, fetcher } = home
    const { recordBytes, firstKey, store } = records
    this.whole =
      store !== null && cache?.writable
        ? new WholeFile({ path: file, size, recordBytes, firstKey, store, cache, fetcher })
        : null
  }

  async read(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted()
    const { recordBytes, firstKey, store } = this.records
    if (offset < 0 || offset + target.length > this.size) {
      throw new ReadError(this.name, offset, target.length, `the read goes past the file's ${this.size} bytes`)
    }
    if (target.length !== recordBytes || offset % recordBytes !== 0) return await this.readPart(offset, target, signal)
    const record = offset / recordBytes
    const { traffic } = this.home
    if (store?.has(firstKey + record) && (await store.read(firstKey + record, target))) {
      traffic.cacheReads++
      traffic.cacheBytes += recordBytes
      return
    }
    await this.fetch(record, target, signal)
    traffic.networkReads++
    traffic.networkBytes += recordBytes
  }

  private fetch(record: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.wanted.push({ record, target, signal, resolve, reject }) > 1) return
      setTimeout(() => {
        const wanted = this.wanted
        this.wanted = []
        for (const run of recordRuns(wanted, this.records.recordBytes)) void this.fetchRun(run)
      })
    })
  }

  /** Each record is stored and handed on when it is whole: the rest of the run may fail or take its time. */
  private async fetchRun({ first, records, signal }: RecordRun<WantedRecord>): Promise<void> {
    const { recordBytes } = this.records
    const targets = records.map(wanted => wanted[0]?.target ?? new Uint8Array(recordBytes))
    let done = 0 // of them
    const onProgress = (got: number) => {
      for (; got >= (done + 1) * recordBytes; done++) void this.arrived(first + done, targets[done], records[done])
    }
    try {
      await this.home.fetcher.scatter(this.file, this.size, first * recordBytes, targets, { signal, onProgress })
    } catch (error) {
      const left = records.slice(done).flat()
      if (this.whole !== null && sendsWholeFiles(error)) await this.fetchWhole(left, this.whole)
      else for (const { reject } of left) reject(error)
    }
  }

  private async fetchWhole(wanted: readonly WantedRecord[], whole: WholeFile): Promise<void> {
    this.home.onWholeFiles()
    const take = async ({ record, target, signal, resolve, reject }: WantedRecord) => {
      try {
        target.set(await whole.record(record, signal))
        resolve()
      } catch (error) {
        reject(error)
      }
    }
    await Promise.all(wanted.map(take))
  }

  private async arrived(record: number, bytes: Uint8Array, wanted: readonly WantedRecord[]): Promise<void> {
    const { firstKey, store, recordBytes } = this.records
    const { cache, traffic } = this.home
    if (wanted.length === 0) {
      traffic.spareReads++
      traffic.spareBytes += recordBytes
    }
    await cache?.store(() => store?.write(firstKey + record, bytes))
    for (const { target, resolve } of wanted) {
      if (target !== bytes) target.set(bytes)
      resolve()
    }
  }

  /** A sample of a file without checksums, which tells one model from another; small, and kept as it is. */
  private async readPart(offset: number, target: Uint8Array, signal?: AbortSignal): Promise<void> {
    const { fetcher, cache } = this.home
    const name = `part-${this.file}@${offset}+${target.length} of ${this.records.version}`
    const stored = await cache?.readFile(name)
    if (stored?.length === target.length) {
      target.set(stored)
      return
    }
    await fetcher.range(this.file, this.size, offset, target, { signal })
    await cache?.writeFile(name, target)
  }

  forget(offset: number, size: number): void {
    const { recordBytes, firstKey, store } = this.records
    const first = Math.floor(offset / recordBytes)
    store?.drop(firstKey + first, firstKey + Math.ceil((offset + size) / recordBytes))
  }

  async close(): Promise<void> {}
}
