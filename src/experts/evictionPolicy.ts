// Which cached expert is evicted. A policy orders slots; the cache decides which of them may be
// emptied. Deterministic, so that a recorded trace replays to the same evictions.
//
// `lru` evicts the least recently used expert. `lrfu` mixes recency and frequency: it evicts the
// one whose next use is expected latest, by its rate of use and by how many layers away it is.
import { Heap } from '../base/heap.js'

export type PolicyName = 'lru' | 'lrfu'

interface PolicyShape {
  readonly layers: number
  readonly experts: number // per layer
  readonly slots: number
}

export interface EvictionPolicy {
  readonly name: PolicyName
  /** The expert was put into the slot, by demand or by a prefetch. */
  inserted(slot: number, layer: number, expert: number): void
  /** The router wanted the expert in this slot. */
  used(slot: number): void
  /** The expert in this slot was used elsewhere. */
  rated(slot: number): void
  /** The slot was emptied. */
  removed(slot: number): void
  /** Whether the slot's expert is the first to go. */
  offer(slot: number, goesFirst: boolean): void
  /** The slot to empty while `layer` is being computed, among those that may go; -1 where there is none. */
  victim(layer: number, mayEvict: (slot: number) => boolean): number
}

const GRACE_STEPS = 4 // half-life of the benefit of doubt that a prefetched expert has

/** `rates`: of all layers' experts. Whoever owns them lets their clock tick. */
export function createPolicy(name: PolicyName, shape: PolicyShape, rates: UseRates): EvictionPolicy {
  return name === 'lru' ? new LruPolicy(shape.slots) : new LrfuPolicy(shape, rates)
}

/** A doubly linked list through the slots, least recently used first. */
class LruPolicy implements EvictionPolicy {
  readonly name = 'lru'
  private readonly next: Int32Array // [slots + 1]; the last element is the list's head and tail
  private readonly previous: Int32Array // [slots + 1]

  constructor(private readonly slots: number) {
    this.next = new Int32Array(slots + 1).fill(-1)
    this.previous = new Int32Array(slots + 1).fill(-1)
    this.next[slots] = slots
    this.previous[slots] = slots
  }

  inserted(slot: number): void {
    this.insertBefore(slot, this.slots)
  }

  used(slot: number): void {
    this.removed(slot)
    this.inserted(slot)
  }

  rated(): void {}

  removed(slot: number): void {
    this.next[this.previous[slot]] = this.next[slot]
    this.previous[this.next[slot]] = this.previous[slot]
  }

  offer(slot: number, goesFirst: boolean): void {
    this.removed(slot)
    this.insertBefore(slot, goesFirst ? this.next[this.slots] : this.slots)
  }

  victim(_layer: number, mayEvict: (slot: number) => boolean): number {
    for (let slot = this.next[this.slots]; slot !== this.slots; slot = this.next[slot]) {
      if (mayEvict(slot)) return slot
    }
    return -1
  }

  private insertBefore(slot: number, after: number): void {
    const before = this.previous[after]
    this.next[before] = slot
    this.previous[slot] = before
    this.next[slot] = after
    this.previous[after] = slot
  }
}

/**
 * A heap of slots per layer, ordered by rate. Rates fade from step to step, each expert's in its own way, so a heap is put in
 * order again when it is first asked in a step; a step that evicts nothing has no such work.
 */
class LrfuPolicy implements EvictionPolicy {
  readonly name = 'lrfu'
  private readonly layers: number
  private readonly experts: number
  private readonly key: Int32Array // [slots], layer * experts + expert
  private readonly broughtAt: Int32Array // [slots], step in which it was put there; -1: it was used since
  private readonly offered: Uint8Array // [slots], 1: goes first
  private readonly first = new Set<number>() // slots of those
  private readonly score: Float64Array // [slots], what the heaps order by
  private readonly heaps: readonly Heap[] // [layers]
  private readonly orderedAt: Int32Array // [layers], step in which the heap was put in order

  constructor(
    shape: PolicyShape,
    private readonly rates: UseRates,
  ) {
    this.layers = shape.layers
    this.experts = shape.experts
    this.key = new Int32Array(shape.slots).fill(-1)
    this.broughtAt = new Int32Array(shape.slots).fill(-1)
    this.offered = new Uint8Array(shape.slots)
    this.score = new Float64Array(shape.slots)
    const place = new Int32Array(shape.slots)
    const before = (a: number, b: number) =>
      this.score[a] < this.score[b] || (this.score[a] === this.score[b] && this.key[a] < this.key[b])
    this.heaps = Array.from({ length: shape.layers }, () => new Heap(before, place))
    this.orderedAt = new Int32Array(shape.layers)
  }

  inserted(slot: number, layer: number, expert: number): void {
    this.key[slot] = layer * this.experts + expert
    this.broughtAt[slot] = this.rates.step
    this.offered[slot] = 0
    this.score[slot] = this.rateOf(slot)
    this.heaps[layer].add(slot)
  }

  used(slot: number): void {
    this.broughtAt[slot] = -1
    this.rates.used(this.key[slot])
    this.moved(slot)
  }

  rated(slot: number): void {
    this.moved(slot)
  }

  offer(slot: number, goesFirst: boolean): void {
    this.offered[slot] = goesFirst ? 1 : 0
    if (goesFirst) this.first.add(slot)
    else this.first.delete(slot)
    this.moved(slot)
  }

  removed(slot: number): void {
    this.first.delete(slot)
    this.heaps[this.layerOf(slot)].remove(slot)
    this.key[slot] = -1
  }

  victim(layer: number, mayEvict: (slot: number) => boolean): number {
    let best = this.firstToGo(layer, mayEvict)
    if (best >= 0) return best
    let bestWait = -1
    for (let ahead = this.layers; ahead >= 1; ahead--) {
      const other = (layer + ahead) % this.layers
      if (this.heaps[other].items.length === 0) continue
      const slot = this.ordered(other).lowest(mayEvict)
      if (slot < 0) continue
      const wait = waitFor(this.score[slot]) + ahead / this.layers
      if (wait > bestWait) {
        best = slot
        bestWait = wait
      }
    }
    return best
  }

  /** Among those who go first, the one whose layer is farthest ahead: found without putting heaps in order. */
  private firstToGo(layer: number, mayEvict: (slot: number) => boolean): number {
    let best = -1
    let bestAhead = -1
    for (const slot of this.first) {
      const ahead = (this.layerOf(slot) - layer - 1 + this.layers) % this.layers
      const isBetter = ahead > bestAhead || (ahead === bestAhead && this.key[slot] < this.key[best])
      if (!isBetter || !mayEvict(slot)) continue
      best = slot
      bestAhead = ahead
    }
    return best
  }

  /** A heap that is not in order will be, with the slot's new score, before it is asked. */
  private moved(slot: number): void {
    const layer = this.layerOf(slot)
    if (this.orderedAt[layer] !== this.rates.step) return
    this.score[slot] = this.rateOf(slot)
    this.heaps[layer].moved(slot)
  }

  private ordered(layer: number): Heap {
    const heap = this.heaps[layer]
    if (this.orderedAt[layer] === this.rates.step) return heap
    this.orderedAt[layer] = this.rates.step
    for (const slot of heap.items) this.score[slot] = this.rateOf(slot)
    heap.rebuild()
    return heap
  }

  /** As if it were used when it was put there, until it is: a prefetched expert must live until its turn. */
  private rateOf(slot: number): number {
    if (this.offered[slot]) return -1
    const rate = this.rates.rate(this.key[slot])
    const at = this.broughtAt[slot]
    return at < 0 ? rate : rate + this.rates.perUse * 2 ** ((at - this.rates.step) / GRACE_STEPS)
  }

  private layerOf(slot: number): number {
    return Math.floor(this.key[slot] / this.experts)
  }
}

/** Mean steps until an event of this rate per step. */
function waitFor(rate: number): number {
  return 1 / Math.min(1, rate) - 1
}

interface RateTuning {
  readonly shortHalfLife: number // steps
  readonly longHalfLife: number
  readonly shortShare: number // of the mix
  readonly meanShare: number // of the mean rate, added to every expert's
}

/** Chosen by replaying traces (performance-log.md). */
export const defaultTuning: RateTuning = { shortHalfLife: 4, longHalfLife: 64, shortShare: 0.3, meanShare: 2 }

/**
 * How often each expert is used per step, as far as its past tells: the one estimate for keeping,
 * evicting and promoting. Mixes two fading counts, a quick one (this sentence) and a slow one (this
 * text), and adds a share of the mean rate: an expert that was not seen recently is used now and
 * then, and few sightings say little. Counts belong to experts, not to slots: an expert that was
 * evicted returns with its past. Pure and deterministic.
 */
export class UseRates {
  step = 0
  private readonly short: FadingCounts
  private readonly long: FadingCounts
  private base = 0 // what every expert has

  constructor(
    experts: number, // of all layers
    private readonly tuning: RateTuning = defaultTuning,
  ) {
    this.short = new FadingCounts(experts, tuning.shortHalfLife)
    this.long = new FadingCounts(experts, tuning.longHalfLife)
    this.tick()
  }

  /** A step begins: one token, or a chunk of them. Until the next one, only those rates change that are used. */
  tick(): void {
    this.step++
    this.short.tick()
    this.long.tick()
    this.base = this.tuning.meanShare * this.long.meanRate
  }

  used(key: number): void {
    this.short.used(key)
    this.long.used(key)
  }

  /** Uses per step, estimated. */
  rate(key: number): number {
    const { shortShare } = this.tuning
    return this.base + shortShare * this.short.rate(key) + (1 - shortShare) * this.long.rate(key)
  }

  /** Uses per step over a longer time, as they were counted. */
  steadyRate(key: number): number {
    return this.long.rate(key)
  }

  /** Used within the last few steps. */
  isFresh(key: number): boolean {
    return this.short.rate(key) > this.short.perUse / 2
  }

  /** Steps over which the past counts for `steadyRate`, and so over which it tells the future. */
  get memorySteps(): number {
    return this.tuning.longHalfLife / Math.LN2
  }

  /** What a use now adds to `steadyRate`. */
  get steadyPerUse(): number {
    return this.long.perUse
  }

  /** What a use now adds to `rate`. */
  get perUse(): number {
    const { shortShare } = this.tuning
    return shortShare * this.short.perUse + (1 - shortShare) * this.long.perUse
  }
}

const LARGEST_UNIT = 2 ** 400

/** A faded count per expert. Instead of fading all counts at each step, a use counts for more at each step. */
class FadingCounts {
  readonly counts: Float64Array // [layers * experts], in growing units
  readonly perUse: number // what a use now adds to a rate
  sum = 0
  private unit = 1 // of a use now
  private readonly growth: number

  constructor(experts: number, halfLife: number) {
    this.counts = new Float64Array(experts)
    this.growth = 2 ** (1 / halfLife)
    this.perUse = 1 - 1 / this.growth
  }

  tick(): void {
    this.unit *= this.growth
    if (this.unit < LARGEST_UNIT) return
    for (let i = 0; i < this.counts.length; i++) this.counts[i] /= this.unit
    this.sum /= this.unit
    this.unit = 1
  }

  used(key: number): void {
    this.counts[key] += this.unit
    this.sum += this.unit
  }

  rate(key: number): number {
    return (this.perUse * this.counts[key]) / this.unit
  }

  get meanRate(): number {
    return (this.perUse * this.sum) / this.unit / this.counts.length
  }
}
