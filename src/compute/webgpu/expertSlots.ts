// Experts in GPU memory: pool buffers of slots, the table (layer, expert) → slot that kernels look up, and the way bytes
// take into a slot (a mapped staging buffer, then a copy on the GPU's own queue). Which expert stays is decided by the
// ExpertCache of each pool. Everything that touches a slot goes through the queue in order, so a slot may be given to
// another expert as soon as the commands that use it are submitted.
import { ExpertCache } from '../../experts/expertCache.js'
import type { ModelConfig } from '../../model/config.js'
import type { ByteSource } from '../../storage/byteSource.js'
import type { ExpertReader, ReadPriority } from './expertReader.js'
import { bufferUsage, mapMode } from './gpuFlags.js'
import { createChecked } from './gpuMemory.js'
import { storageBuffer } from './kernel.js'
import type { PoolPlan, SlotLayout, SlotMove } from './slotLayout.js'

export const MISSING = 0xffffffff
export const STAGING_BUFFERS = 24
const FILLING = 16 // reads of a fill at once: leaves staging buffers for demand

interface Pool {
  readonly buffer: GPUBuffer
  readonly cache: ExpertCache
  readonly firstLayer: number
  readonly keys: Int32Array // [slots], layer * experts + expert that the table shows in it; -1: none
  readonly loading: Map<number, Promise<void>> // by slot
}

export class ExpertSlots {
  readonly table: GPUBuffer // [layers, experts]
  readonly waveTable: GPUBuffer // [layers, experts]: only the experts of a wave
  stallSeconds = 0
  readonly #device: GPUDevice
  readonly #config: ModelConfig
  readonly #layout: SlotLayout
  readonly #plan: PoolPlan
  readonly #pools: Pool[]
  readonly #reader: ExpertReader
  readonly #recordBytes: number
  readonly #staging: GPUBuffer[] // mapped and free
  readonly #waiting: ((buffer: GPUBuffer) => void)[] = []
  readonly #missing: Int32Array // [layers], experts that are not in a ready slot
  readonly #flights = new Set<Promise<void>>()
  #closed = false

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
    const staging = Array.from({ length: STAGING_BUFFERS }, () => ({
      label: 'expert staging',
      size: Math.max(layout.stride, Math.ceil(recordBytes / 4) * 4),
      usage: bufferUsage.mapWrite | bufferUsage.copySrc,
      mappedAtCreation: true,
    }))
    return new ExpertSlots(
      device,
      config,
      layout,
      plan,
      reader,
      recordBytes,
      buffers,
      await createChecked(device, staging, 'expert staging'),
    )
  }

  private constructor(
    device: GPUDevice,
    config: ModelConfig,
    layout: SlotLayout,
    plan: PoolPlan,
    reader: ExpertReader,
    recordBytes: number,
    buffers: readonly GPUBuffer[],
    staging: GPUBuffer[],
  ) {
    this.#device = device
    this.#config = config
    this.#layout = layout
    this.#plan = plan
    this.#reader = reader
    this.#recordBytes = recordBytes
    this.#staging = staging
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
    this.table = storageBuffer(device, tableBytes, 'slot table')
    this.waveTable = storageBuffer(device, tableBytes, 'wave table')
    device.queue.writeBuffer(this.table, 0, new Uint32Array(tableBytes / 4).fill(MISSING))
    this.#missing = new Int32Array(config.numLayers).fill(config.numExperts)
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
          else await Promise.race(loading.values()) // prefetches hold every slot for now
        }
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
        if (wave.length === 0) await Promise.race(loading.values()) // prefetches hold every slot for now
      }
    } finally {
      unpin(wave)
      unpin(next)
    }
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
      const { cache, firstLayer, loading } = this.#pool(layer)
      if (cache.slotOf(layer - firstLayer, expert) >= 0) continue
      const slot = cache.claimAhead(layer - firstLayer, expert)
      if (slot < 0) return
      this.#load(layer, expert, slot, 'prefetch')
      const flight = loading.get(slot) as Promise<void>
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

  #load(layer: number, expert: number, slot: number, priority: ReadPriority): void {
    const pool = this.#pool(layer)
    const flight = this.#bring(pool, layer, expert, slot, priority)
    pool.loading.set(slot, flight)
    this.#flights.add(flight)
    flight
      .catch(() => {})
      .finally(() => {
        this.#flights.delete(flight)
        if (pool.loading.get(slot) === flight) pool.loading.delete(slot)
      })
  }

  async #bring(pool: Pool, layer: number, expert: number, slot: number, priority: ReadPriority): Promise<void> {
    const { numExperts } = this.#config
    const key = layer * numExperts + expert
    this.#hide(pool, slot)
    const staging = await this.#takeStaging()
    try {
      const mapped = new Uint8Array(staging.getMappedRange())
      const { moves, stride } = this.#layout
      if (moves === null) await this.#reader.read(layer, expert, mapped, priority)
      else {
        const record = new Uint8Array(this.#recordBytes)
        await this.#reader.read(layer, expert, record, priority)
        for (const { from, to, size } of moves) mapped.set(record.subarray(from, from + size), to)
      }
      if (this.#closed) return
      staging.unmap()
      const encoder = this.#device.createCommandEncoder()
      encoder.copyBufferToBuffer(staging, 0, pool.buffer, slot * stride, stride)
      this.#device.queue.submit([encoder.finish()])
      this.#device.queue.writeBuffer(this.table, key * 4, new Uint32Array([slot]))
      pool.keys[slot] = key
      this.#missing[layer]--
      pool.cache.filled(slot)
      void staging.mapAsync(mapMode.write).then(
        () => this.#giveStaging(staging),
        () => {}, // the device is gone
      )
    } catch (error) {
      pool.cache.vacate(slot)
      this.#giveStaging(staging)
      throw error
    }
  }

  /** What was in the slot is no longer found. */
  #hide(pool: Pool, slot: number): void {
    const key = pool.keys[slot]
    if (key < 0) return
    pool.keys[slot] = -1
    this.#missing[Math.floor(key / this.#config.numExperts)]++
    this.#device.queue.writeBuffer(this.table, key * 4, new Uint32Array([MISSING]))
  }

  #takeStaging(): Promise<GPUBuffer> | GPUBuffer {
    return this.#staging.pop() ?? new Promise(resolve => this.#waiting.push(resolve))
  }

  #giveStaging(buffer: GPUBuffer): void {
    const next = this.#waiting.shift()
    if (next !== undefined) next(buffer)
    else this.#staging.push(buffer)
  }
}
