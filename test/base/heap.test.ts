// The heap against a sorted array, with random operations: heaps that share their items, and a heap
// that only gives the first.
import { describe, expect, test } from 'vitest'
import { Heap } from '#moeflux/base/heap.js'
import { seededRandom } from '../support/random.js'

const ITEMS = 40
const HEAPS = 3

describe.each([1, 2, 3, 4, 5])('with random operations, seed %d,', seed => {
  test('heaps that share their items give the first that may be taken', () => {
    const random = seededRandom(seed)
    const below = (end: number) => Math.floor(random() * end)
    const score = Array.from({ length: ITEMS }, () => below(10)) // with ties, which the item decides
    const before = (a: number, b: number) => score[a] < score[b] || (score[a] === score[b] && a < b)
    const places = new Int32Array(ITEMS)
    const heaps = Array.from({ length: HEAPS }, () => new Heap(before, places))
    const sorted = (heap: Heap) => [...heap.items].sort((a, b) => (before(a, b) ? -1 : 1))
    const heapOf = new Array<number>(ITEMS).fill(-1) // -1: in none
    for (let turn = 0; turn < 500; turn++) {
      const item = below(ITEMS)
      const heap = heaps[heapOf[item]]
      if (heap === undefined) {
        heapOf[item] = below(HEAPS)
        heaps[heapOf[item]].add(item)
      } else if (random() < 0.3) {
        heap.remove(item)
        heapOf[item] = -1
      } else if (random() < 0.9) {
        score[item] = below(10)
        heap.moved(item)
      } else {
        for (const each of heap.items) score[each] = below(10)
        heap.rebuild()
      }
      for (const [i, each] of heaps.entries()) {
        expect([...each.items].sort()).toEqual(heapOf.flatMap((at, other) => (at === i ? [other] : [])).sort())
        expect(each.items.every((other, at) => places[other] === at)).toBe(true)
        const mayTake = (other: number) => (other * 7 + turn) % 4 !== 0
        expect(each.lowest(() => true)).toBe(sorted(each)[0] ?? -1)
        expect(each.lowest(mayTake)).toBe(sorted(each).find(mayTake) ?? -1)
      }
    }
  })

  test('a heap without places gives its items in order', () => {
    const random = seededRandom(seed)
    const heap = new Heap((a, b) => a < b, null)
    const expected: number[] = []
    for (let turn = 0; turn < 1000; turn++) {
      if (random() < 0.55) {
        const item = Math.floor(random() * 500)
        heap.add(item)
        expected.push(item)
        expected.sort((a, b) => a - b)
      } else expect(heap.take()).toBe(expected.shift())
      expect(heap.items.length).toBe(expected.length)
    }
    while (expected.length > 0) expect(heap.take()).toBe(expected.shift())
    expect(heap.take()).toBeUndefined()
    expect(heap.lowest(() => true)).toBe(-1)
  })
})
