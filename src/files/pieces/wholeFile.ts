// A file on a host that sends no parts of files: it comes whole, once, and is cut into records that are kept as they pass.
// Whoever wants one of them waits until it is there. Needs a place to keep them: without one, each would cost the whole file.
import { FetchError } from '../../base/errors.js'
import type { RangeFetcher } from '../rangeFetcher.js'
import type { ModelCache } from './modelCache.js'
import type { RecordStore } from './recordStore.js'

interface WholeFileOptions {
  readonly path: string
  readonly size: number
  readonly recordBytes: number
  readonly firstKey: number // of the first record in the store
  readonly store: RecordStore
  readonly cache: ModelCache
  readonly fetcher: RangeFetcher
}

interface Waiter {
  readonly record: number
  resolve(bytes: Uint8Array): void
  reject(error: unknown): void
}

export function sendsWholeFiles(error: unknown): boolean {
  return error instanceof FetchError && error.code === 'NO_RANGES'
}

export class WholeFile {
  private running = false
  private next = 0 // record that passes
  private waiting: Waiter[] = []

  constructor(private readonly options: WholeFileOptions) {}

  /** A record, when it passes. One that has passed is stored, or passes once more. */
  async record(record: number, signal?: AbortSignal): Promise<Uint8Array> {
    signal?.throwIfAborted()
    const { store, firstKey } = this.options
    if (this.running && record < this.next) {
      const bytes = new Uint8Array(this.lengthOf(record))
      if (store.has(firstKey + record) && (await store.read(firstKey + record, bytes))) return bytes
    }
    return await new Promise<Uint8Array>((resolve, reject) => {
      this.waiting.push({ record, resolve, reject })
      if (!this.running) void this.run(signal)
    })
  }

  private async run(signal?: AbortSignal): Promise<void> {
    this.running = true
    try {
      while (this.waiting.length > 0) await this.pass(signal)
    } catch (error) {
      for (const { reject } of this.waiting.splice(0)) reject(error)
    } finally {
      this.running = false
    }
  }

  private async pass(signal?: AbortSignal): Promise<void> {
    const { path, size, fetcher } = this.options
    this.next = 0
    let bytes = new Uint8Array(this.lengthOf(0))
    let got = 0
    const take = (chunk: Uint8Array) => {
      for (let from = 0; from < chunk.length; ) {
        const part = chunk.subarray(from, from + bytes.length - got)
        bytes.set(part, got)
        from += part.length
        got += part.length
        if (got < bytes.length) return
        void this.passed(this.next++, bytes)
        bytes = new Uint8Array(this.lengthOf(this.next))
        got = 0
      }
    }
    await fetcher.stream(path, size, take, { signal })
  }

  private async passed(record: number, bytes: Uint8Array): Promise<void> {
    const { store, cache, firstKey } = this.options
    const isWaiting = (waiter: Waiter) => waiter.record === record
    const done = this.waiting.filter(isWaiting)
    this.waiting = this.waiting.filter(waiter => !isWaiting(waiter))
    await cache.store(() => store.write(firstKey + record, bytes))
    for (const { resolve } of done) resolve(bytes)
  }

  private lengthOf(record: number): number {
    const { recordBytes, size } = this.options
    return Math.max(0, Math.min(recordBytes, size - record * recordBytes))
  }
}
