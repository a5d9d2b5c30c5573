// Experts in GPU memory: pool buffers of slots, and which expert is in which. Which one stays is decided by the ExpertCache
// of each pool, reading is the reader's, and the bytes' way into a slot that of ExpertUploads; this joins them.
import { ExpertCache } from '../../experts/expertCache.js'
import type { GuessedSlots } from '../../experts/readAhead.js'
import type { ModelConfig } from '../../model/config.js'
import type { ByteSource } from '../../storage/byteSource.js'
import type { ExpertReader, ReadPriority } from './expertReader.js'
import { ExpertUploads, MISSING } from './expertUploads.js'
import { bufferUsage } from './gpuFlags.js'
import { createChecked } from './gpuMemory.js'
import { storageBuffer } from './kernel.js'
import type { PoolPlan, SlotLayout, SlotMove } from './slotLayout.js'

const PREFETCHING = 16 // reads ahead at once
const FILLING = 16 // reads of a fill at once: leaves staging buffers for demand

interface Pool {
  readonly buffer: GPUBuffer
  readonly cache: ExpertCache
  readonly firstLayer: number
  readonly keys: Int32Array // [slots], layer * experts + expert that the table shows in it; -1: none
  readonly loading: Map<number, Promise<void>> // by slot
}

export class ExpertSlots implements GuessedSlots {
  readonly waveTable: GPUBuffer // [layers, experts]: only the experts of a wave
  stallSeconds = 0
  onRead: (() => void) | null = null // an expert has arrived, or failed to
  readonly #device: GPUDevice
  readonly #config: ModelConfig
  readonly #layout: SlotLayout
  readonly #plan: PoolPlan
  readonly #pools: Pool[]
  readonly #reader: ExpertReader
  readonly #recordBytes: number
  readonly #uploads: ExpertUploads
  readonly #missing: Int32Array // [layers], experts that are not in a ready slot
  readonly #flights = new Set<Promise<void>>()
  #closed = false
  #prefetching = 0

  static async create(
    device: GPUDevice,
    config: ModelConfig,
    layout: SlotLayout,
    plan: PoolPlan,
    reader: ExpertReader,
    recordBytes: number,
  ): Promise<ExpertSlots> {
    const usage = bufferUsage.storage | bufferUsage.copyDst
    const descriptors = Array.from({ length: plan.pools }, (_, i) => {
      const shared = plan.hasShared ? plan.poolOfLayer.filter(pool => pool === i).length : 0
      return { label: `experts ${i}`, size: (plan.slots + shared) * layout.stride, usage }
    })
    const buffers = await createChecked(device, descriptors, 'expert memory')
    const shape = { layers: config.numLayers, experts: config.numExperts, stride: layout.stride, recordBytes }
    const uploads = await ExpertUploads.create(device, shape)
    return new ExpertSlots(device, config, layout, plan, reader, recordBytes, buffers, uploads)
  }

  private constructor(
    device: GPUDevice,
    config: ModelConfig,
    layout: SlotLayout,
    plan: PoolPlan,
    reader: ExpertReader,
    recordBytes: number,
    buffers: readonly GPUBuffer[],
    uploads: ExpertUploads,
  ) {
    this.#device = device
    this.#config = config
    this.#layout = layout
    this.#plan = plan
    this.#reader = reader
    this.#recordBytes = recordBytes
    this.#uploads = uploads
    this.#pools = buffers.map((buffer, index) => {
      const firstLayer = plan.poolOfLayer.indexOf(index)
      const layers = plan.poolOfLayer.filter(pool => pool === index).length
      const { numExperts: experts } = config
      const shape = { layers, experts, slots: plan.slots, expertBytes: layout.stride, policy: 'lrfu' } as const
      return {
        buffer,
        cache: new ExpertCache(shape),
        firstLayer,
        keys: new Int32Array(plan.slots).fill(-1),
        loading: new Map(),
      }
    })
    const tableBytes = config.numLayers * config.numExperts * 4
    this.waveTable = storageBuffer(device, tableBytes, 'wave table')
    this.#missing = new Int32Array(config.numLayers).fill(config.numExperts)
  }

  /** For kernels: the slot of each expert. */
  get table(): GPUBuffer {
    return this.#uploads.table
  }

  /** While this is on, what arrives waits for the next `submit`. */
  set gathers(on: boolean) {
    this.#uploads.gathers = on
  }

  /** Submits commands that use layers before `end`, after the uploads that they may need. */
  submit(commands: readonly GPUCommandBuffer[], end: number): void {
    this.#uploads.submit(commands, end)
  }

  /** The slot of a layer's shared expert, after those of the experts; null where it is computed apart. */
  sharedSlot(layer: number): number | null {
    return this.#plan.hasShared ? this.#plan.slots + layer - this.#pool(layer).firstLayer : null
  }

  /** Puts the shared experts into their slots, once. */
  async loadShared(weights: ByteSource, moves: readonly (readonly SlotMove[])[]): Promise<void> {
    for (const [layer, parts] of moves.entries()) {
      const bytes = new Uint8Array(this.#layout.stride)
      await Promise.all(parts.map(({ from, to, size }) => weights.read(from, bytes.subarray(to, to + size))))
      const at = (this.sharedSlot(layer) as number) * this.#layout.stride
      this.#device.queue.writeBuffer(this.#pool(layer).buffer, at, bytes)
    }
  }

  get slots(): number {
    return this.#plan.slots * this.#plan.pools
  }

  get slotsUsed(): number {
    return this.#pools.reduce((sum, pool) => sum + pool.cache.slotsUsed, 0)
  }

  /** Which experts are in slots. */
  residency(): Uint8Array {
    const { numLayers, numExperts } = this.#config
    const resident = new Uint8Array(numLayers * numExperts)
    for (const { cache, firstLayer } of this.#pools) resident.set(cache.resident, firstLayer * numExperts)
    return resident
  }

  get bytes(): number {
    return this.slots * this.#layout.stride
  }

  get reads(): ExpertReader['totals'] {
    return this.#reader.totals
  }

  counters() {
    const sum = { hits: 0, misses: 0, prefetchReads: 0, prefetchHits: 0, prefetchWastedBytes: 0 }
    for (const { cache } of this.#pools) {
      for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += cache.counters[name]
    }
    return sum
  }

  buffer(layer: number): GPUBuffer {
    return this.#pool(layer).buffer
  }

  /** Whether every expert of the layer is in a slot, so that no routing can miss. */
  isResident(layer: number): boolean {
    return this.#missing[layer] === 0
  }

  /** Whether no routing at all can miss. */
  get isAllResident(): boolean {
    return this.#missing.every(count => count === 0)
  }

  tick(): void {
    for (const { cache } of this.#pools) cache.tick()
  }

  /** Tells the cache that these experts were used, all of them being in slots. */
  touch(layer: number, experts: Iterable<number>): void {
    const { cache, firstLayer } = this.#pool(layer)
    for (const expert of experts) {
      const slot = cache.want(layer - firstLayer, expert)
      if (slot >= 0) cache.unpin(slot)
    }
  }

  /** Brings all of a layer's wanted experts into slots at once, and keeps them there until the returned call. */
  async hold(layer: number, wanted: Iterable<number>, signal?: AbortSignal): Promise<() => void> {
    const { cache, firstLayer, loading } = this.#pool(layer)
    const experts = [...wanted]
    const pinned: number[] = []
    const release = () => {
      // A failed read has emptied its slot and taken the pin with it.
      for (const slot of pinned.splice(0)) if (cache.isPinned(slot)) cache.unpin(slot)
    }
    try {
      for (const expert of experts) {
        let slot = cache.want(layer - firstLayer, expert)
        while (slot < 0) {
          slot = cache.claim(layer - firstLayer, expert)
          if (slot >= 0) this.#load(layer, expert, slot, 'demand')
          else await slotFree(loading) // prefetches hold every slot for now
        }
        if (loading.has(slot)) this.#reader.promote(layer, expert)
        pinned.push(slot)
      }
      await this.#arrived(layer, experts, signal)
    } catch (error) {
      release()
      throw error
    }
    return release
  }

  /**
   * Brings a layer's wanted experts into slots, in waves where they are more than the slots: those that are there first,
   * while the others are read. The caller submits each wave's work before it asks for the next; `waveTable` then shows
   * the wave's experts alone.
   */
  async *waves(layer: number, wanted: readonly number[], signal?: AbortSignal): AsyncGenerator<number[]> {
    const { cache, firstLayer, loading } = this.#pool(layer)
    const local = layer - firstLayer
    const missing: number[] = []
    let wave: { expert: number; slot: number }[] = []
    const claim = () => {
      const claimed: { expert: number; slot: number }[] = []
      while (missing.length > 0) {
        const slot = cache.claim(local, missing[0])
        if (slot < 0) break
        claimed.push({ expert: missing[0], slot })
        this.#load(layer, missing.shift() as number, slot, 'demand')
      }
      return claimed
    }
    // A failed read has emptied its slot and taken the pin with it.
    const unpin = (members: { slot: number }[]) => {
      for (const { slot } of members) if (cache.isPinned(slot)) cache.unpin(slot)
    }
    let next: { expert: number; slot: number }[] = []
    try {
      for (const expert of wanted) {
        const slot = cache.want(local, expert)
        if (slot < 0) missing.push(expert)
        else wave.push({ expert, slot })
      }
      for (;;) {
        next = claim()
        if (wave.length > 0) {
          const experts = wave.map(member => member.expert)
          await this.#arrived(layer, experts, signal)
          this.#showWave(layer, experts)
          yield experts
        }
        unpin(wave)
        wave = next.length > 0 ? next : claim()
        next = []
        if (wave.length === 0 && missing.length === 0) return
        if (wave.length === 0) await slotFree(loading) // prefetches hold every slot for now
      }
    } finally {
      unpin(wave)
      unpin(next)
    }
  }

  /** Whether the expert is in a slot, or on its way into one. */
  has(layer: number, expert: number): boolean {
    const { cache, firstLayer } = this.#pool(layer)
    return cache.slotOf(layer - firstLayer, expert) >= 0
  }

  /** Experts on their way into slots. */
  get reading(): number {
    return this.#flights.size
  }

  /** All experts are read again when they are wanted, but for those on their way. */
  forget(): void {
    for (const pool of this.#pools) {
      for (let slot = 0; slot < pool.cache.slots; slot++) {
        if (!pool.cache.isReady(slot) || pool.cache.isPinned(slot)) continue
        this.#hide(pool, slot)
        pool.cache.vacate(slot)
      }
    }
  }

  /** Begins to read an expert that may be wanted soon, unless many such reads are under way. */
  prefetch(layer: number, expert: number): void {
    if (this.#closed || this.#prefetching >= PREFETCHING || this.has(layer, expert)) return
    const { cache, firstLayer } = this.#pool(layer)
    const slot = cache.claimAhead(layer - firstLayer, expert)
    if (slot < 0) return
    this.#prefetching++
    const flight = this.#load(layer, expert, slot, 'prefetch')
    void flight.catch(() => {}).finally(() => this.#prefetching--)
  }

  /** Whether there is a slot for every expert. */
  get holdsAll(): boolean {
    const { numLayers, numExperts } = this.#config
    return this.slots >= numLayers * numExperts && this.#plan.pools === numLayers
  }

  /** Brings every expert into its slot, behind whatever is wanted meanwhile. Ends early when closed or when a read fails. */
  async fill(onLoaded?: (experts: number) => void): Promise<void> {
    const { numLayers, numExperts } = this.#config
    const running = new Set<Promise<void>>()
    for (let key = 0; key < numLayers * numExperts && !this.#closed; key++) {
      const layer = Math.floor(key / numExperts)
      const expert = key % numExperts
      const { cache, firstLayer } = this.#pool(layer)
      if (cache.slotOf(layer - firstLayer, expert) >= 0) continue
      const slot = cache.claimAhead(layer - firstLayer, expert)
      if (slot < 0) return
      const flight = this.#load(layer, expert, slot, 'prefetch')
      running.add(flight)
      void flight.catch(() => {}).finally(() => running.delete(flight))
      if (running.size >= FILLING) await Promise.race(running)
      onLoaded?.(key + 1)
    }
    await Promise.all(running)
  }

  /** Waits until reads that are under way have ended. */
  async drain(): Promise<void> {
    await Promise.allSettled([...this.#flights])
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.drain()
    await this.#reader.close()
  }

  #pool(layer: number): Pool {
    return this.#pools[this.#plan.poolOfLayer[layer]]
  }

  async #arrived(layer: number, experts: readonly number[], signal?: AbortSignal): Promise<void> {
    const { cache, firstLayer, loading } = this.#pool(layer)
    const began = performance.now()
    let waited = false
    for (const expert of experts) {
      const flight = loading.get(cache.slotOf(layer - firstLayer, expert))
      if (flight === undefined) continue
      waited = true
      await flight
      signal?.throwIfAborted()
    }
    if (waited) this.stallSeconds += (performance.now() - began) / 1000
  }

  #showWave(layer: number, experts: readonly number[]): void {
    const { numExperts } = this.#config
    const { cache, firstLayer } = this.#pool(layer)
    const row = new Uint32Array(numExperts).fill(MISSING)
    for (const expert of experts) row[expert] = cache.slotOf(layer - firstLayer, expert)
    this.#device.queue.writeBuffer(this.waveTable, layer * numExperts * 4, row)
  }

  #load(layer: number, expert: number, slot: number, priority: ReadPriority): Promise<void> {
    const pool = this.#pool(layer)
    const flight = this.#bring(pool, layer, expert, slot, priority)
    pool.loading.set(slot, flight)
    this.#flights.add(flight)
    flight
      .catch(() => {})
      .finally(() => {
        this.#flights.delete(flight)
        if (pool.loading.get(slot) === flight) pool.loading.delete(slot)
        this.onRead?.()
      })
    return flight
  }

  async #bring(pool: Pool, layer: number, expert: number, slot: number, priority: ReadPriority): Promise<void> {
    const key = layer * this.#config.numExperts + expert
    this.#hide(pool, slot)
    // Where a buffer is free, the read is asked for before this returns: its caller has other work to do first.
    const taken = this.#uploads.take()
    const staging = taken instanceof Promise ? await taken : taken
    try {
      const mapped = new Uint8Array(staging.getMappedRange())
      const { moves } = this.#layout
      if (moves === null) await this.#reader.read(layer, expert, mapped, priority)
      else {
        const record = new Uint8Array(this.#recordBytes)
        await this.#reader.read(layer, expert, record, priority)
        for (const { from, to, size } of moves) mapped.set(record.subarray(from, from + size), to)
      }
    } catch (error) {
      pool.cache.vacate(slot)
      this.#uploads.giveBack(staging)
      throw error
    }
    if (this.#closed) return
    this.#uploads.send(staging, pool.buffer, slot, key)
    pool.keys[slot] = key
    this.#missing[layer]--
    pool.cache.filled(slot)
  }

  /** What was in the slot is no longer found. */
  #hide(pool: Pool, slot: number): void {
    const key = pool.keys[slot]
    if (key < 0) return
    pool.keys[slot] = -1
    this.#missing[Math.floor(key / this.#config.numExperts)]++
    this.#uploads.hide(key)
  }
}

/** Whether the read that ends first failed is the business of whoever asked for it. */
async function slotFree(loading: ReadonlyMap<number, Promise<void>>): Promise<void> {
  await Promise.race(loading.values()).catch(() => {})
}
