// Which cached expert goes when room is needed. A policy orders slots; it knows nothing of pins, reads or bytes: the cache
// says which slots may go. Everything is deterministic, so that a recorded trace replays to the same evictions.
//
// `lru` forgets the least recently used. `lrfu` mixes recency and frequency: every use of an expert adds 1 to its count
// and counts fade with a half-life in steps, so that a count estimates the chance of use in the next step. It evicts the
// expert whose next use is expected latest, which also depends on how many layers away that expert's turn is. Counts of
// experts that are not cached are kept: a hot expert that was evicted comes back hot.

export type PolicyName = 'lru' | 'lrfu'

export interface PolicyShape {
  readonly layers: number
  readonly experts: number // per layer
  readonly slots: number
}

export interface EvictionPolicy {
  readonly name: PolicyName
  /** A step begins (one token, or a chunk of them): the policy's clock. */
  tick(): void
  /** The expert was put into the slot, by demand or by a prefetch. */
  inserted(slot: number, layer: number, expert: number): void
  /** The router wanted the expert in this slot. */
  used(slot: number): void
  /** The slot was emptied. */
  removed(slot: number): void
  /** The slot to empty while `layer` is being computed, among those that may go; -1 where there is none. */
  victim(layer: number, mayEvict: (slot: number) => boolean): number
}

export function createPolicy(name: PolicyName, shape: PolicyShape): EvictionPolicy {
  return name === 'lru' ? new LruPolicy(shape.slots) : new LrfuPolicy(shape)
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

  tick(): void {}

  inserted(slot: number): void {
    const last = this.previous[this.slots]
    this.next[last] = slot
    this.previous[slot] = last
    this.next[slot] = this.slots
    this.previous[this.slots] = slot
  }

  used(slot: number): void {
    this.removed(slot)
    this.inserted(slot)
  }

  removed(slot: number): void {
    this.next[this.previous[slot]] = this.next[slot]
    this.previous[this.next[slot]] = this.previous[slot]
  }

  victim(_layer: number, mayEvict: (slot: number) => boolean): number {
    for (let slot = this.next[this.slots]; slot !== this.slots; slot = this.next[slot]) {
      if (mayEvict(slot)) return slot
    }
    return -1
  }
}

// Chosen by replaying traces (docs/performance.md).
const halfLifeSteps = 12

/**
 * One min-heap of slots per layer. A count c that fades by half every H steps is kept as log2(c) + step / H, which does
 * not change while the expert is not used: heaps stay valid without touching idle slots.
 */
class LrfuPolicy implements EvictionPolicy {
  readonly name = 'lrfu'
  private step = 0
  private readonly layers: number
  private readonly experts: number
  private readonly history: Float64Array // [layers * experts], the faded count of uses
  private readonly score: Float64Array // [slots], what the heaps order by
  private readonly key: Int32Array // [slots], layer * experts + expert
  private readonly place: Int32Array // [slots], index in its layer's heap
  private readonly heaps: number[][] // [layers], slots

  constructor(shape: PolicyShape) {
    this.layers = shape.layers
    this.experts = shape.experts
    this.history = new Float64Array(shape.layers * shape.experts).fill(Number.NEGATIVE_INFINITY)
    this.score = new Float64Array(shape.slots)
    this.key = new Int32Array(shape.slots).fill(-1)
    this.place = new Int32Array(shape.slots).fill(-1)
    this.heaps = Array.from({ length: shape.layers }, () => [])
  }

  tick(): void {
    this.step++
  }

  inserted(slot: number, layer: number, expert: number): void {
    this.key[slot] = layer * this.experts + expert
    // As if it were used now, without entering the history: a prefetched expert must live until its turn.
    this.score[slot] = this.withUse(this.history[this.key[slot]])
    const heap = this.heaps[layer]
    this.place[slot] = heap.length
    heap.push(slot)
    this.rise(heap, slot)
  }

  used(slot: number): void {
    const key = this.key[slot]
    this.history[key] = this.withUse(this.history[key])
    this.score[slot] = this.history[key]
    const heap = this.heaps[this.layerOf(slot)]
    this.rise(heap, slot)
    this.sink(heap, slot)
  }

  removed(slot: number): void {
    const heap = this.heaps[this.layerOf(slot)]
    const at = this.place[slot]
    const last = heap.pop() as number
    if (last !== slot) {
      heap[at] = last
      this.place[last] = at
      this.rise(heap, last)
      this.sink(heap, last)
    }
    this.key[slot] = -1
    this.place[slot] = -1
  }

  victim(layer: number, mayEvict: (slot: number) => boolean): number {
    let best = -1
    let bestWait = -1
    for (let ahead = this.layers; ahead >= 1; ahead--) {
      const heap = this.heaps[(layer + ahead) % this.layers]
      const slot = this.lowest(heap, 0, mayEvict)
      if (slot < 0) continue
      const wait = this.expectedWait(slot, ahead)
      if (wait > bestWait) {
        best = slot
        bestWait = wait
      }
    }
    return best
  }

  /** Steps until the next use: the mean wait of an event of this probability, and the layers in between. */
  private expectedWait(slot: number, layersAhead: number): number {
    const count = 2 ** (this.score[slot] - this.step / halfLifeSteps)
    const probability = Math.min(1, count * (1 - 2 ** (-1 / halfLifeSteps)))
    return 1 / probability - 1 + layersAhead / this.layers
  }

  private withUse(score: number): number {
    const now = this.step / halfLifeSteps
    const high = Math.max(score, now)
    return high + Math.log2(1 + 2 ** (Math.min(score, now) - high))
  }

  private layerOf(slot: number): number {
    return Math.floor(this.key[slot] / this.experts)
  }

  // Only slots that may not go are stepped over, and they are few.
  private lowest(heap: readonly number[], at: number, mayEvict: (slot: number) => boolean): number {
    if (at >= heap.length) return -1
    if (mayEvict(heap[at])) return heap[at]
    const left = this.lowest(heap, 2 * at + 1, mayEvict)
    const right = this.lowest(heap, 2 * at + 2, mayEvict)
    if (left < 0 || right < 0) return Math.max(left, right)
    return this.before(right, left) ? right : left
  }

  private before(a: number, b: number): boolean {
    return this.score[a] < this.score[b] || (this.score[a] === this.score[b] && this.key[a] < this.key[b])
  }

  private rise(heap: number[], slot: number): void {
    let at = this.place[slot]
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!this.before(slot, heap[parent])) break
      this.put(heap, at, heap[parent])
      at = parent
    }
    this.put(heap, at, slot)
  }

  private sink(heap: number[], slot: number): void {
    let at = this.place[slot]
    for (;;) {
      let child = 2 * at + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && this.before(heap[child + 1], heap[child])) child++
      if (!this.before(heap[child], slot)) break
      this.put(heap, at, heap[child])
      at = child
    }
    this.put(heap, at, slot)
  }

  private put(heap: number[], at: number, slot: number): void {
    heap[at] = slot
    this.place[slot] = at
  }
}
