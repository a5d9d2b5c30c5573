// A binary heap of whole numbers, ordered by a callback of its owner. The owner reports what
// changes an item's position in that order (`moved`, or `rebuild` for many).

export class Heap {
  private readonly heap: number[] = []

  /**
   * `places` [items]: index of each item in its heap, for heaps that share their items; null: no
   * `remove` and no `moved`.
   */
  constructor(
    private readonly before: (a: number, b: number) => boolean,
    private readonly places: Int32Array | null,
  ) {}

  /** All items, in no useful order. */
  get items(): readonly number[] {
    return this.heap
  }

  add(item: number): void {
    this.heap.push(item)
    this.rise(this.heap.length - 1, item)
  }

  /** Removes the first item; undefined: there is none. */
  take(): number | undefined {
    const first = this.heap[0]
    const last = this.heap.pop() as number
    if (this.heap.length > 0) this.sink(0, last)
    return first
  }

  remove(item: number): void {
    const at = this.placeOf(item)
    const last = this.heap.pop() as number
    if (last === item) return
    this.put(at, last)
    this.moved(last)
  }

  /** The item's position in the order has changed. */
  moved(item: number): void {
    this.rise(this.placeOf(item), item)
    this.sink(this.placeOf(item), item)
  }

  /** The order of many items has changed. */
  rebuild(): void {
    for (let at = (this.heap.length >> 1) - 1; at >= 0; at--) this.sink(at, this.heap[at])
  }

  /**
   * The first item that `mayTake` allows; -1: there is none. Steps over the others, which must be
   * few.
   */
  lowest(mayTake: (item: number) => boolean, at = 0): number {
    if (at >= this.heap.length) return -1
    if (mayTake(this.heap[at])) return this.heap[at]
    const left = this.lowest(mayTake, 2 * at + 1)
    const right = this.lowest(mayTake, 2 * at + 2)
    if (left < 0 || right < 0) return Math.max(left, right)
    return this.before(right, left) ? right : left
  }

  private rise(from: number, item: number): void {
    let at = from
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!this.before(item, this.heap[parent])) break
      this.put(at, this.heap[parent])
      at = parent
    }
    this.put(at, item)
  }

  private sink(from: number, item: number): void {
    let at = from
    for (;;) {
      let child = 2 * at + 1
      if (child >= this.heap.length) break
      if (child + 1 < this.heap.length && this.before(this.heap[child + 1], this.heap[child])) child++
      if (!this.before(this.heap[child], item)) break
      this.put(at, this.heap[child])
      at = child
    }
    this.put(at, item)
  }

  private put(at: number, item: number): void {
    this.heap[at] = item
    if (this.places !== null) this.places[item] = at
  }

  private placeOf(item: number): number {
    return (this.places as Int32Array)[item]
  }
}
