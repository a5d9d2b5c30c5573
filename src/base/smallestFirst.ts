// A heap of whole numbers: whatever the order in which they come, they leave smallest first.

export class SmallestFirst {
  private readonly heap: number[] = []

  add(value: number): void {
    const { heap } = this
    let at = heap.push(value) - 1
    for (let parent = (at - 1) >> 1; at > 0 && heap[parent] > value; parent = (at - 1) >> 1) {
      heap[at] = heap[parent]
      at = parent
    }
    heap[at] = value
  }

  /** Undefined where there is none. */
  take(): number | undefined {
    const { heap } = this
    const smallest = heap[0]
    const last = heap.pop()
    if (heap.length === 0 || last === undefined) return smallest
    let at = 0
    for (let child = 1; child < heap.length; child = 2 * at + 1) {
      if (child + 1 < heap.length && heap[child + 1] < heap[child]) child++
      if (heap[child] >= last) break
      heap[at] = heap[child]
      at = child
    }
    heap[at] = last
    return smallest
  }
}
