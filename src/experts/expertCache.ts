// Which expert is in which slot. A pure bookkeeper: it moves no bytes, waits for nothing, and behaves the same in the
// engine, in `moeflux simulate` and in tests. A slot is empty, in flight (a read into it is under way) or ready. Pinned and
// in-flight slots are never given away, and there are never more slots than the budget in bytes holds.
import { createPolicy, type EvictionPolicy, type PolicyName } from './evictionPolicy.js'
import type { UseRates } from './useRates.js'

export interface CacheShape {
  readonly layers: number
  readonly experts: number // per layer
  readonly slots: number
  readonly expertBytes: number
  readonly policy: PolicyName
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

export class ExpertCache {
  readonly slots: number
  slotsOffered = 0
  readonly counters: CacheCounters = {
    hits: 0,
    misses: 0,
    prefetchReads: 0,
    prefetchHits: 0,
    prefetchWastedBytes: 0,
    evictions: 0,
  }
  private readonly policy: EvictionPolicy
  private readonly keyOfSlot: Int32Array // [slots], layer * experts + expert; -1: empty
  private readonly slotOfKey: Int32Array // [layers * experts]; -1: not cached
  private readonly pins: Int32Array // [slots]
  private readonly flying: Uint8Array // [slots], 1: a read into it is under way
  private readonly unused: Uint8Array // [slots], 1: brought by a prefetch and not wanted yet
  private readonly offered: Uint8Array // [slots], 1: the first to go
  private readonly empty: number[] // stack of empty slots
  private readonly mayEvict = (slot: number) => this.pins[slot] === 0 && this.flying[slot] === 0

  constructor(
    private readonly shape: CacheShape,
    /** Kept up to date for whoever looks on, in shared memory where that is another thread. */
    readonly resident: Uint8Array = new Uint8Array(shape.layers * shape.experts), // [layers, experts], 1: in a slot, read
    /** Where several caches share what is known about uses. Whoever ticks one of them ticks all. */
    rates?: UseRates,
  ) {
    this.slots = Math.min(shape.slots, shape.layers * shape.experts)
    const { layers, experts } = shape
    this.policy = createPolicy(shape.policy, { layers, experts, slots: this.slots }, rates)
    this.keyOfSlot = new Int32Array(this.slots).fill(-1)
    this.slotOfKey = new Int32Array(shape.layers * shape.experts).fill(-1)
    this.pins = new Int32Array(this.slots)
    this.flying = new Uint8Array(this.slots)
    this.unused = new Uint8Array(this.slots)
    this.offered = new Uint8Array(this.slots)
    this.empty = Array.from({ length: this.slots }, (_, i) => this.slots - 1 - i)
  }

  get slotsUsed(): number {
    return this.slots - this.empty.length
  }

  get bytesUsed(): number {
    return this.slotsUsed * this.shape.expertBytes
  }

  /** A step begins: the clock of the eviction policy. */
  tick(): void {
    this.policy.tick()
  }

  /** The slot of an expert, ready or in flight; -1 where it is not cached. */
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
    return this.keyOfSlot[slot] >= 0 && this.flying[slot] === 0
  }

  isPinned(slot: number): boolean {
    return this.pins[slot] > 0
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
    this.pins[slot]++
    this.offer(slot, false)
    this.policy.used(slot)
    return slot
  }

  /** A pinned, in-flight slot for an expert that is wanted and missing; -1 where no slot may be emptied now. */
  claim(layer: number, expert: number): number {
    const slot = this.take(layer, expert)
    if (slot < 0) return -1
    this.counters.misses++
    this.pins[slot] = 1
    this.policy.used(slot)
    return slot
  }

  /** An in-flight slot for an expert that may be wanted; -1 where no slot may be emptied now. */
  claimAhead(layer: number, expert: number): number {
    const slot = this.take(layer, expert)
    if (slot < 0) return -1
    this.counters.prefetchReads++
    this.unused[slot] = 1
    return slot
  }

  /** The slot that a claim while `layer` is computed would get: an empty one, or that of who must leave; -1: none. */
  slotToTake(layer: number): number {
    return this.empty.at(-1) ?? this.policy.victim(layer, this.mayEvict)
  }

  /** Makes this slot's expert the first to go, until it is wanted; or one like the others again. */
  offer(slot: number, goesFirst: boolean): void {
    if (this.isOffered(slot) === goesFirst) return
    this.offered[slot] = goesFirst ? 1 : 0
    this.policy.offer(slot, goesFirst)
    this.slotsOffered += goesFirst ? 1 : -1
  }

  isOffered(slot: number): boolean {
    return this.offered[slot] === 1
  }

  pin(slot: number): void {
    this.pins[slot]++
  }

  unpin(slot: number): void {
    if (this.pins[slot] === 0) throw new Error(`slot ${slot} is not pinned`)
    this.pins[slot]--
  }

  /** The read into this slot ended well. */
  filled(slot: number): void {
    this.flying[slot] = 0
    this.resident[this.keyOfSlot[slot]] = 1
  }

  /** The read into this slot failed or was called off: the slot is empty again, whoever pinned it. */
  vacate(slot: number, calledOff = false): void {
    if (calledOff && this.unused[slot]) {
      this.counters.prefetchReads-- // it never reached the disk
      this.unused[slot] = 0
    }
    this.pins[slot] = 0
    this.flying[slot] = 0
    this.remove(slot)
    this.empty.push(slot)
  }

  private take(layer: number, expert: number): number {
    const key = layer * this.shape.experts + expert
    if (this.slotOfKey[key] >= 0) throw new Error(`expert ${expert} of layer ${layer} is cached already`)
    const slot = this.slotToTake(layer)
    if (slot < 0) return -1
    if (this.empty.length > 0) {
      this.empty.pop()
    } else {
      this.counters.evictions++
      this.remove(slot)
    }
    this.keyOfSlot[slot] = key
    this.slotOfKey[key] = slot
    this.flying[slot] = 1
    this.policy.inserted(slot, layer, expert)
    return slot
  }

  private remove(slot: number): void {
    if (this.unused[slot]) {
      this.counters.prefetchWastedBytes += this.shape.expertBytes
      this.unused[slot] = 0
    }
    this.offer(slot, false)
    this.policy.removed(slot)
    this.slotOfKey[this.keyOfSlot[slot]] = -1
    this.resident[this.keyOfSlot[slot]] = 0
    this.keyOfSlot[slot] = -1
  }
}
