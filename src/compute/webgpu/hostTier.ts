// The experts that a GPU has no room for: in memory, computed there by threads, read from disk when they are not there.
// Joins the cache's decisions, the reader threads that fill slots, and the workers. One layer's experts at a time; where
// they are more than the slots, in turns.
import { ClosedError, ExpertReadError } from '../../errors.js'
import { ExpertCache } from '../../experts/expertCache.js'
import type { ReadPriority } from '../../experts/expertReaderPool.js'
import type { ModelConfig } from '../../model/config.js'
import type { HostEntry, HostWorkers } from '../wasm/hostWorkers.js'
import type { ExpertReader } from './expertReader.js'
import type { HostExperts, HostPair } from './hostExperts.js'

/** What the tier needs of reader threads. */
export interface SlotReader {
  read(file: number, offset: number, size: number, bank: number, target: number, priority: ReadPriority): Promise<void>
  close(): Promise<void>
}

interface Wanted {
  readonly expert: number
  readonly rows: number[]
  readonly weights: number[]
}

export class HostTier implements HostExperts {
  readonly cache: ExpertCache
  stallSeconds = 0
  private readonly loading = new Map<number, Promise<void>>() // by slot
  private closed = false

  constructor(
    config: ModelConfig,
    private readonly expertSize: number,
    private readonly fileNames: readonly string[], // [layers]
    private readonly workers: HostWorkers,
    private readonly reader: SlotReader,
    readonly leastToBring: number,
  ) {
    const { numLayers: layers, numExperts: experts } = config
    const slots = workers.slots.length
    this.cache = new ExpertCache({ layers, experts, slots, expertBytes: workers.slotBytes, policy: 'lrfu' })
  }

  async compute(
    layer: number,
    hidden: Float32Array,
    pairs: readonly HostPair[],
    signal?: AbortSignal,
  ): Promise<Float32Array> {
    const left = groupPairs(pairs)
    let sum: Float32Array | null = null
    while (left.length > 0) {
      const { ready, coming } = this.take(layer, left)
      try {
        // What is there is computed while the others are read.
        if (ready.length > 0) sum = add(sum, await this.workers.compute(layer, hidden, ready))
        if (coming.length > 0) {
          await this.arrive(layer, coming)
          signal?.throwIfAborted()
          sum = add(sum, await this.workers.compute(layer, hidden, coming))
        }
      } finally {
        await Promise.allSettled(coming.map(({ slot }) => this.loading.get(slot)))
        for (const { slot } of [...ready, ...coming]) if (this.cache.isPinned(slot)) this.cache.unpin(slot)
      }
      signal?.throwIfAborted()
      if (this.closed) throw new ClosedError('model')
    }
    return sum as Float32Array
  }

  tick(): void {
    this.cache.tick()
  }

  /** The bytes of an expert that is in memory; valid until the next turn of the event loop. */
  bytesOf(layer: number, expert: number): Uint8Array | null {
    const slot = this.cache.slotOf(layer, expert)
    if (slot < 0 || !this.cache.isReady(slot)) return null
    const { bank, address } = this.workers.slots[slot]
    return new Uint8Array(this.workers.memories[bank].buffer, address, this.expertSize)
  }

  /** Reads experts into mapped memory: from memory where they are there, else as `other` does. */
  readerBefore(other: ExpertReader): ExpertReader {
    return {
      read: async (layer, expert, target, priority) => {
        const bytes = this.bytesOf(layer, expert)
        if (bytes === null) return other.read(layer, expert, target, priority)
        Buffer.from(target.buffer, target.byteOffset, bytes.length).fill(bytes)
      },
      promote: (layer, expert) => other.promote(layer, expert),
      isLocal: false, // guesses are no reason to move experts to the GPU
      get totals() {
        return other.totals
      },
      close: async () => {
        await other.close()
        await this.close()
      },
    }
  }

  async close(): Promise<void> {
    this.closed = true
    await this.reader.close()
    await Promise.allSettled(this.loading.values())
    await this.workers.close()
  }

  /** Pins experts as far as slots go, and has those read that are not there. */
  private take(layer: number, left: Wanted[]): { ready: HostEntry[]; coming: HostEntry[] } {
    const ready: HostEntry[] = []
    const coming: HostEntry[] = []
    const waiting: Wanted[] = []
    for (const wanted of left.splice(0)) {
      let slot = this.cache.want(layer, wanted.expert)
      if (slot < 0) {
        slot = this.cache.claim(layer, wanted.expert)
        if (slot >= 0) this.load(layer, wanted.expert, slot)
      }
      if (slot < 0) waiting.push(wanted)
      else (this.loading.has(slot) ? coming : ready).push({ slot, rows: wanted.rows, weights: wanted.weights })
    }
    left.push(...waiting)
    return { ready, coming }
  }

  private load(layer: number, expert: number, slot: number): void {
    const { bank, address } = this.workers.slots[slot]
    const { expertSize } = this
    const read = this.reader.read(layer, expert * expertSize, expertSize, bank, address, 'demand')
    const flight = read.then(
      () => {
        this.loading.delete(slot)
        this.cache.filled(slot)
      },
      error => {
        this.loading.delete(slot)
        this.cache.failed(slot)
        const detail = (error as Error).message
        throw new ExpertReadError(layer, expert, this.fileNames[layer], expert * expertSize, detail, { cause: error })
      },
    )
    flight.catch(() => {}) // whoever waits for it sees the error
    this.loading.set(slot, flight)
  }

  private async arrive(layer: number, entries: readonly HostEntry[]): Promise<void> {
    const began = performance.now()
    await Promise.all(entries.map(({ slot }) => this.loading.get(slot)))
    this.stallSeconds += (performance.now() - began) / 1000
    const lacks = entries.find(({ slot }) => !this.cache.isReady(slot) || this.cache.layerOf(slot) !== layer)
    if (lacks !== undefined) throw new Error(`slot ${lacks.slot} has no expert of layer ${layer}`)
  }
}

function groupPairs(pairs: readonly HostPair[]): Wanted[] {
  const byExpert = new Map<number, Wanted>()
  for (const { token, expert, weight } of pairs) {
    const wanted = byExpert.get(expert) ?? { expert, rows: [], weights: [] }
    wanted.rows.push(token)
    wanted.weights.push(weight)
    byExpert.set(expert, wanted)
  }
  return [...byExpert.values()].sort((a, b) => a.expert - b.expert)
}

function add(sum: Float32Array | null, rows: Float32Array): Float32Array {
  if (sum === null) return rows
  for (let i = 0; i < rows.length; i++) sum[i] += rows[i]
  return sum
}
