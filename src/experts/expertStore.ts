// Experts from the packed files on demand, as JavaScript values: the store behind the reference backend. Slots hold what a
// record was decoded to; reading ahead is left to others.
import { ClosedError } from '../base/errors.js'
import type { ExpertFiles } from '../files/packed/packedModel.js'
import { readPatiently } from '../files/readRetries.js'
import { AsyncStreamer } from './asyncStreamer.js'
import { ExpertCache } from './expertCache.js'
import { ReadMeter } from './readers/readCounters.js'
import { type ReadFault, type ReadOrders, readFault, StreamerCore, type StreamerStats } from './streamerCore.js'

const READS_IN_FLIGHT = 8

export class ExpertStore<T> {
  private readonly meter = new ReadMeter()
  private readonly cache: ExpertCache
  private readonly streamer: AsyncStreamer
  private readonly values: (T | undefined)[] = [] // by slot
  private readonly queue: number[] = [] // slots whose reads have not begun
  private readonly closing = new AbortController()
  private underWay = 0

  constructor(
    private readonly experts: ExpertFiles,
    shape: {
      readonly layers: number
      readonly experts: number
      readonly slots: number
      readonly layerNumbers?: readonly number[]
    },
    private readonly decode: (record: Uint8Array, layer: number) => T,
  ) {
    const { expertSize } = experts.layout
    this.cache = new ExpertCache({ ...shape, expertBytes: expertSize, policy: 'lru' })
    const orders: ReadOrders = {
      ask: slot => {
        this.values[slot] = undefined
        this.queue.push(slot)
        this.beginReads()
      },
      promote() {},
      callOff: slot => {
        const at = this.queue.indexOf(slot)
        if (at >= 0) this.queue.splice(at, 1)
        return at >= 0
      },
    }
    const fileNames = experts.files.map(file => file.name)
    const options = { aheadLimit: 0, expertSize, fileNames, layerNumbers: shape.layerNumbers }
    this.streamer = new AsyncStreamer(new StreamerCore(this.cache, orders, options))
  }

  get stats(): StreamerStats {
    return this.streamer.core.stats
  }

  get reads(): ReadMeter['totals'] {
    return this.meter.totals
  }

  /** Which experts are in memory. */
  residency(): Uint8Array {
    return this.cache.resident.slice()
  }

  tick(): void {
    this.cache.tick()
  }

  /** Gives each of a layer's `wanted` experts (no duplicates), cached ones first, while the others are being read. */
  async *take(layer: number, wanted: readonly number[], signal?: AbortSignal): AsyncGenerator<[number, T]> {
    for await (const slots of this.streamer.waves(layer, wanted, { signal, asTheyCome: true })) {
      for (const slot of slots) yield [this.cache.expertOf(slot), this.values[slot] as T]
    }
  }

  /** Everything is read again when it is wanted. */
  forget(): void {
    this.streamer.core.forget()
  }

  /** Waits until no read is under way, so that files can be closed. */
  async close(): Promise<void> {
    this.queue.length = 0
    this.closing.abort(new ClosedError('model'))
    this.streamer.end(new ClosedError('model'))
    await this.streamer.settled(() => this.underWay === 0)
    this.values.length = 0
  }

  private beginReads(): void {
    while (this.underWay < READS_IN_FLIGHT && this.queue.length > 0) this.begin(this.queue.shift() as number)
  }

  private begin(slot: number): void {
    const { files, layout } = this.experts
    const layer = this.cache.layerOf(slot)
    const offset = this.cache.expertOf(slot) * layout.expertSize
    const record = new Uint8Array(layout.expertSize)
    const { signal } = this.closing
    const read = (onRetry: () => void) => readPatiently(files[layer], offset, record, { signal, onRetry })
    this.underWay++
    this.meter
      .measure(record.length, read)
      .then(() => {
        this.values[slot] = this.decode(record, layer)
      })
      .then(
        () => this.end(slot, null),
        error => this.end(slot, readFault(error)),
      )
  }

  private end(slot: number, fault: ReadFault | null): void {
    this.underWay--
    this.streamer.core.ended(slot, fault)
    if (!this.streamer.isOver) {
      this.streamer.core.goOn()
      this.beginReads()
    }
    this.streamer.changed()
  }
}
