// Experts from the packed files on demand, with the most recently used ones kept: the simple store behind the reference
// backend. No prefetch, no slots: an expert is a JavaScript value, and who still uses an evicted one keeps it alive.
import { ChecksumError, ExpertReadError, ReadError } from '../errors.js'
import type { ExpertFiles } from '../storage/packedModel.js'
import { raceAbort } from './raceAbort.js'

const READS_IN_FLIGHT = 8
const ATTEMPTS = 3
const LATENCY_BUCKETS = 20

export interface ExpertCounters {
  hits: number
  misses: number
  bytesRead: number
  readSeconds: number // summed over reads
  readLatencyMs: number[] // histogram: bucket i counts reads of < 2^i / 8 ms
  stallSeconds: number // the caller waited for a read
}

export class LruExpertStore<T> {
  readonly counters: ExpertCounters = {
    hits: 0,
    misses: 0,
    bytesRead: 0,
    readSeconds: 0,
    readLatencyMs: new Array(LATENCY_BUCKETS).fill(0),
    stallSeconds: 0,
  }
  private readonly cache = new Map<string, T>() // in order of use, oldest first
  private readonly reading = new Set<Promise<unknown>>()

  constructor(
    private readonly experts: ExpertFiles,
    readonly slots: number,
    private readonly decode: (record: Uint8Array) => T,
  ) {}

  get slotsUsed(): number {
    return this.cache.size
  }

  /** Layer and expert of what is in memory. */
  *cached(): Generator<[layer: number, expert: number]> {
    for (const key of this.cache.keys()) {
      const [layer, expert] = key.split('/')
      yield [Number(layer), Number(expert)]
    }
  }

  /** Gives each of a layer's `wanted` experts (no duplicates), cached ones first, while the others are being read. */
  async *take(layer: number, wanted: readonly number[], signal?: AbortSignal): AsyncGenerator<[number, T]> {
    const hits: [number, T][] = []
    const misses: number[] = []
    for (const expert of wanted) {
      const value = this.touch(layer, expert)
      if (value === undefined) misses.push(expert)
      else hits.push([expert, value])
    }
    this.counters.hits += hits.length
    this.counters.misses += misses.length
    const pending: Promise<[number, T]>[] = []
    let next = 0
    const readAhead = () => {
      while (next < misses.length && pending.length < READS_IN_FLIGHT) {
        const read = this.load(layer, misses[next++], signal)
        read.catch(() => {}) // seen by whoever awaits it, or by nobody once the caller has stopped
        pending.push(read)
      }
    }
    readAhead()
    yield* hits
    while (pending.length > 0) {
      const start = performance.now()
      const loaded = await raceAbort(pending.shift() as Promise<[number, T]>, signal)
      this.counters.stallSeconds += (performance.now() - start) / 1000
      readAhead()
      yield loaded
    }
  }

  /** The bytes of one expert's record, past the cache. */
  async read(layer: number, expert: number, signal?: AbortSignal): Promise<Uint8Array> {
    const { files, layout } = this.experts
    const file = files[layer]
    const offset = expert * layout.expertSize
    const record = new Uint8Array(layout.expertSize)
    const start = performance.now()
    for (let attempt = 1; ; attempt++) {
      signal?.throwIfAborted()
      try {
        await file.read(offset, record, signal)
        break
      } catch (error) {
        signal?.throwIfAborted()
        if (attempt < ATTEMPTS && !(error instanceof ChecksumError)) continue // those were read several times
        const detail = error instanceof ReadError ? error.message : String(error)
        throw new ExpertReadError(layer, expert, file.name, offset, detail, { cause: error })
      }
    }
    this.count(performance.now() - start, record.length)
    return record
  }

  /** Everything is read again when it is wanted. */
  forget(): void {
    this.cache.clear()
  }

  /** Waits until no read is under way, so that files can be closed. */
  async drain(): Promise<void> {
    await Promise.allSettled([...this.reading])
    this.cache.clear()
  }

  private touch(layer: number, expert: number): T | undefined {
    const key = `${layer}/${expert}`
    const value = this.cache.get(key)
    if (value !== undefined) {
      this.cache.delete(key)
      this.cache.set(key, value)
    }
    return value
  }

  private async load(layer: number, expert: number, signal?: AbortSignal): Promise<[number, T]> {
    const read = this.read(layer, expert, signal)
    this.reading.add(read)
    try {
      const value = this.decode(await read)
      if (this.cache.size >= this.slots) this.cache.delete(this.cache.keys().next().value as string)
      this.cache.set(`${layer}/${expert}`, value)
      return [expert, value]
    } finally {
      this.reading.delete(read)
    }
  }

  private count(milliseconds: number, bytes: number) {
    const bucket = Math.max(0, Math.floor(Math.log2(milliseconds * 8)) + 1)
    this.counters.readLatencyMs[Math.min(bucket, LATENCY_BUCKETS - 1)]++
    this.counters.readSeconds += milliseconds / 1000
    this.counters.bytesRead += bytes
  }
}
