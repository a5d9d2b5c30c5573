// Which expert is in which slot. A pure bookkeeper: it moves no bytes, waits for nothing, and behaves the same in the
// engine, in `moeflux simulate` and in tests. What may happen to a slot and when is decided by its life (slotLife.ts), and
// there are never more slots than the budget in bytes holds. Layers may share all slots, or slots may come in pools of
// equal size that serve some layers each.
import { createPolicy, type EvictionPolicy, type PolicyName, UseRates } from './evictionPolicy.js'
import { SlotLife, slotState } from './slotLife.js'

export interface CacheShape {
  readonly layers: number
  readonly experts: number // per layer
  readonly slots: number // of all pools
  readonly expertBytes: number
  readonly policy: PolicyName
  readonly poolOfLayer?: readonly number[] // [layers], ascending from 0; default: one pool
}

export interface ExpertName {
  readonly layer: number
  readonly expert: number
}

export interface CacheCounters {
  hits: number // wanted, and in a slot already (or on its way by a prefetch)
  misses: number // wanted, and read on demand
  prefetchReads: number
  prefetchHits: number // hits that a prefetch brought, each read counted once
  prefetchWastedBytes: number // prefetched and dropped unused
  evictions: number
}

/** Slots that a budget in bytes holds. */
export function slotsInBudget(budgetBytes: number, expertBytes: number): number {
  return Math.floor(budgetBytes / expertBytes)
}

interface Pool {
  readonly firstSlot: number
  size: number // slots that are in use, from the first on
  isClosed: boolean // nothing new comes into it
  offered: number // slots
  readonly policy: EvictionPolicy // of slots counted from the first
  readonly empty: number[] // stack of empty slots
  readonly mayEvict: (slot: number) => boolean // counted from the first
}

export class ExpertCache {
  readonly slots: number
  readonly slotsPerPool: number
  readonly life: SlotLife
  readonly resident: Uint8Array // [layers, experts], 1: in a slot, read
  readonly counters: CacheCounters = {
    hits: 0,
    misses: 0,
    prefetchReads: 0,
    prefetchHits: 0,
    prefetchWastedBytes: 0,
    evictions: 0,
  }
  private readonly rates: UseRates
  private readonly pools: readonly Pool[]
  private readonly poolOfLayer: readonly number[]
  private readonly keyOfSlot: Int32Array // [slots], layer * experts + expert; -1: empty
  private readonly slotOfKey: Int32Array // [layers * experts]; -1: not cached
  private readonly unused: Uint8Array // [slots], 1: brought by a prefetch and not wanted yet
  private readonly offered: Uint8Array // [slots], 1: the first to go

  constructor(
    private readonly shape: CacheShape,
    options: {
      /** Kept up to date for whoever looks on, in shared memory where that is another thread. */
      readonly resident?: Uint8Array // [layers, experts], 1: in a slot, read
      /** Where bytes take the way of staging buffers. */
      readonly stagingBuffers?: number
      /** Where several caches share what is known about uses. Whoever ticks one of them ticks all. */
      readonly rates?: UseRates
    } = {},
  ) {
    const { layers, experts } = shape
    this.poolOfLayer = shape.poolOfLayer ?? new Array<number>(layers).fill(0)
    const pools = layers > 0 ? this.poolOfLayer[layers - 1] + 1 : 1
    this.slotsPerPool = Math.floor((pools === 1 ? Math.min(shape.slots, layers * experts) : shape.slots) / pools)
    this.slots = pools * this.slotsPerPool
    this.life = new SlotLife(this.slots, options.stagingBuffers)
    this.resident = options.resident ?? new Uint8Array(layers * experts)
    this.rates = options.rates ?? new UseRates(layers * experts)
    this.pools = Array.from({ length: pools }, (_, i) => this.createPool(i))
    this.keyOfSlot = new Int32Array(this.slots).fill(-1)
    this.slotOfKey = new Int32Array(layers * experts).fill(-1)
    this.unused = new Uint8Array(this.slots)
    this.offered = new Uint8Array(this.slots)
  }

  /** Slots that can be used: fewer than there were where pools have become smaller. */
  get slotsLeft(): number {
    return this.pools.reduce((left, pool) => left + pool.size, 0)
  }

  get slotsUsed(): number {
    return this.pools.reduce((used, pool) => used - pool.empty.length, this.slotsLeft)
  }

  get bytesUsed(): number {
    return this.slotsUsed * this.shape.expertBytes
  }

  /** A step begins (one token, or a chunk of them). */
  tick(): void {
    this.rates.tick()
  }

  /** The slot of an expert, ready or asked for; -1 where it is not cached. */
  slotOf(layer: number, expert: number): number {
    return this.slotOfKey[layer * this.shape.experts + expert]
  }

  layerOf(slot: number): number {
    return Math.floor(this.keyOfSlot[slot] / this.shape.experts)
  }

  expertOf(slot: number): number {
    return this.keyOfSlot[slot] % this.shape.experts
  }

  nameOf(slot: number): ExpertName | null {
    return this.keyOfSlot[slot] < 0 ? null : { layer: this.layerOf(slot), expert: this.expertOf(slot) }
  }

  isReady(slot: number): boolean {
    return this.life.stateOf(slot) === slotState.ready
  }

  isPinned(slot: number): boolean {
    return this.life.pinsOf(slot) > 0
  }

  /** The router wants this expert: where it is cached, pins it and returns its slot, else -1. */
  want(layer: number, expert: number): number {
    const slot = this.slotOf(layer, expert)
    if (slot < 0) return -1
    this.counters.hits++
    if (this.unused[slot]) {
      this.counters.prefetchHits++
      this.unused[slot] = 0
    }
    this.life.pin(slot)
    this.offer(slot, false)
    this.used(slot)
    return slot
  }

  /** A pinned slot for an expert that is wanted and missing, to be read; -1 where no slot may be emptied now. */
  claim(layer: number, expert: number): number {
    const slot = this.take(layer, expert)
    if (slot < 0) return -1
    this.counters.misses++
    this.life.pin(slot)
    this.used(slot)
    return slot
  }

  /** A slot for an expert that may be wanted, to be read; -1 where no slot may be emptied now. */
  claimAhead(layer: number, expert: number, slot?: number): number {
    return this.markAhead(this.take(layer, expert, slot))
  }

  /**
   * The same for an expert of the layer after the present one that is sure to be wanted: -1 also where a claim would get a
   * better slot later, when the present layer has done with its own.
   */
  claimNext(layer: number, expert: number): number {
    const { policy, firstSlot, mayEvict, isClosed } = this.pools[this.poolOfLayer[layer]]
    if (isClosed) return -1
    if (this.hasEmpty(layer)) return this.claimAhead(layer, expert)
    const best = policy.victim(layer - 1, () => true)
    if (best < 0 || !mayEvict(best)) return -1
    return this.markAhead(this.take(layer, expert, firstSlot + best))
  }

  /**
   * The slot that a claim while `layer` is computed would get: an empty one, or that of who must leave; -1: none. `mayLeave`:
   * who may, besides being neither in use nor on its way.
   */
  slotToTake(layer: number, mayLeave?: (slot: number) => boolean): number {
    const { policy, empty, firstSlot, mayEvict, isClosed } = this.pools[this.poolOfLayer[layer]]
    if (isClosed) return -1
    if (empty.length > 0) return empty[empty.length - 1]
    const mayTake = mayLeave ? (slot: number) => mayEvict(slot) && mayLeave(firstSlot + slot) : mayEvict
    const victim = policy.victim(layer, mayTake)
    return victim < 0 ? -1 : firstSlot + victim
  }

  /** Whether a claim while `layer` is computed would get an empty slot. */
  hasEmpty(layer: number): boolean {
    const { empty, isClosed } = this.pools[this.poolOfLayer[layer]]
    return empty.length > 0 && !isClosed
  }

  /** Makes this slot's expert the first to go, until it is wanted; or one like the others again. */
  offer(slot: number, goesFirst: boolean): void {
    if (this.isOffered(slot) === goesFirst) return
    this.offered[slot] = goesFirst ? 1 : 0
    const pool = this.poolOf(slot)
    pool.policy.offer(slot - pool.firstSlot, goesFirst)
    pool.offered += goesFirst ? 1 : -1
  }

  /** The slot's expert was used, and from another cache's slot. */
  rated(slot: number): void {
    const { policy, firstSlot } = this.poolOf(slot)
    policy.rated(slot - firstSlot)
  }

  /** Slots of a layer's pool that are the first to go. */
  slotsOffered(layer: number): number {
    return this.pools[this.poolOfLayer[layer]].offered
  }

  isOffered(slot: number): boolean {
    return this.offered[slot] === 1
  }

  pin(slot: number): void {
    this.life.pin(slot)
  }

  unpin(slot: number): void {
    if (this.life.unpin(slot)) this.poolOf(slot).empty.push(slot)
  }

  /** The read into this slot ended well. */
  filled(slot: number): void {
    this.life.arrive(slot)
    this.resident[this.keyOfSlot[slot]] = 1
  }

  /** The read into this slot failed: the expert is not cached. Those who have pinned the slot keep it until they unpin it. */
  failed(slot: number): void {
    const isEmpty = this.life.fail(slot)
    this.remove(slot)
    if (isEmpty) this.poolOf(slot).empty.push(slot)
  }

  /** The read into this slot will not begin. */
  calledOff(slot: number): void {
    this.life.callOff(slot)
    if (this.unused[slot]) {
      this.counters.prefetchReads-- // it never reached the disk
      this.unused[slot] = 0
    }
    this.remove(slot)
    this.poolOf(slot).empty.push(slot)
  }

  /** What is in this slot is not kept: it is read again when it is wanted. */
  forget(slot: number): void {
    this.life.evict(slot)
    this.remove(slot)
    this.poolOf(slot).empty.push(slot)
  }

  // --- pools that become smaller -----------------------------------------------------------------------------------

  poolIndexOf(slot: number): number {
    return this.pools.length === 1 ? 0 : Math.floor(slot / this.slotsPerPool)
  }

  /** Nothing new comes into the pool until it is opened again. */
  closePool(index: number): void {
    this.pools[index].isClosed = true
  }

  /** Whether reads into the pool have not ended. */
  isReading(index: number): boolean {
    const { firstSlot, size } = this.pools[index]
    for (let slot = firstSlot; slot < firstSlot + size; slot++) {
      if (this.life.stateOf(slot) === slotState.asked) return true
    }
    return false
  }

  /** Nothing that is in the pool is kept. `onForget`: before a slot is emptied. */
  emptyPool(index: number, onForget: (slot: number) => void): void {
    const { firstSlot, size } = this.pools[index]
    for (let slot = firstSlot; slot < firstSlot + size; slot++) {
      if (this.keyOfSlot[slot] < 0) continue
      onForget(slot)
      this.forget(slot)
    }
  }

  /** The empty pool is in use again, with so many slots from now on; no more than before. */
  openPool(index: number, size: number): void {
    const pool = this.pools[index]
    pool.size = size
    const left = pool.empty.filter(slot => slot < pool.firstSlot + size)
    pool.empty.splice(0, pool.empty.length, ...left)
    pool.isClosed = false
  }

  private createPool(index: number): Pool {
    const { layers, experts, policy } = this.shape
    const slots = this.slotsPerPool
    const firstSlot = index * slots
    return {
      firstSlot,
      size: slots,
      isClosed: false,
      offered: 0,
      policy: createPolicy(policy, { layers, experts, slots }, this.rates),
      empty: Array.from({ length: slots }, (_, i) => firstSlot + slots - 1 - i),
      mayEvict: slot => this.life.mayEvict(firstSlot + slot),
    }
  }

  private poolOf(slot: number): Pool {
    return this.pools[this.poolIndexOf(slot)]
  }

  private used(slot: number): void {
    const { policy, firstSlot } = this.poolOf(slot)
    policy.used(slot - firstSlot)
  }

  private markAhead(slot: number): number {
    if (slot < 0) return -1
    this.counters.prefetchReads++
    this.unused[slot] = 1
    return slot
  }

  private take(layer: number, expert: number, slot = this.slotToTake(layer)): number {
    const key = layer * this.shape.experts + expert
    if (this.slotOfKey[key] >= 0) throw new Error(`expert ${expert} of layer ${layer} is cached already`)
    if (slot < 0) return -1
    const { policy, empty, firstSlot } = this.poolOf(slot)
    if (empty.length > 0) empty.pop()
    else {
      this.counters.evictions++
      this.life.evict(slot)
      this.remove(slot)
    }
    this.keyOfSlot[slot] = key
    this.slotOfKey[key] = slot
    this.life.claim(slot)
    policy.inserted(slot - firstSlot, layer, expert)
    return slot
  }

  private remove(slot: number): void {
    if (this.unused[slot]) {
      this.counters.prefetchWastedBytes += this.shape.expertBytes
      this.unused[slot] = 0
    }
    this.offer(slot, false)
    const { policy, firstSlot } = this.poolOf(slot)
    policy.removed(slot - firstSlot)
    this.slotOfKey[this.keyOfSlot[slot]] = -1
    this.resident[this.keyOfSlot[slot]] = 0
    this.keyOfSlot[slot] = -1
  }
}
