// A binary heap of slots, lowest first by an order that its owner knows. Who changes a slot's place in that order says so
// (`moved`, or `rebuild` for many).

export type SlotOrder = (a: number, b: number) => boolean // whether a comes before b

export class SlotHeap {
  private readonly heap: number[] = []

  constructor(
    private readonly before: SlotOrder,
    /** Index of each slot in its heap: heaps that share their slots share it. */
    private readonly place: Int32Array, // [slots]
  ) {}

  /** Those that are in it, in no order that helps others. */
  get slots(): readonly number[] {
    return this.heap
  }

  add(slot: number): void {
    this.heap.push(slot)
    this.rise(this.heap.length - 1, slot)
  }

  remove(slot: number): void {
    const at = this.place[slot]
    const last = this.heap.pop() as number
    if (last === slot) return
    this.put(at, last)
    this.moved(last)
  }

  /** The slot's place in the order has changed. */
  moved(slot: number): void {
    this.rise(this.place[slot], slot)
    this.sink(this.place[slot], slot)
  }

  /** The order of many slots has changed. */
  rebuild(): void {
    for (let at = (this.heap.length >> 1) - 1; at >= 0; at--) this.sink(at, this.heap[at])
  }

  /** The first slot that may be taken; -1 where there is none. Only those that may not are stepped over, and they are few. */
  lowest(mayTake: (slot: number) => boolean, at = 0): number {
    if (at >= this.heap.length) return -1
    if (mayTake(this.heap[at])) return this.heap[at]
    const left = this.lowest(mayTake, 2 * at + 1)
    const right = this.lowest(mayTake, 2 * at + 2)
    if (left < 0 || right < 0) return Math.max(left, right)
    return this.before(right, left) ? right : left
  }

  private rise(from: number, slot: number): void {
    let at = from
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!this.before(slot, this.heap[parent])) break
      this.put(at, this.heap[parent])
      at = parent
    }
    this.put(at, slot)
  }

  private sink(from: number, slot: number): void {
    let at = from
    for (;;) {
      let child = 2 * at + 1
      if (child >= this.heap.length) break
      if (child + 1 < this.heap.length && this.before(this.heap[child + 1], this.heap[child])) child++
      if (!this.before(this.heap[child], slot)) break
      this.put(at, this.heap[child])
      at = child
    }
    this.put(at, slot)
  }

  private put(at: number, slot: number): void {
    this.heap[at] = slot
    this.place[slot] = at
  }
}
