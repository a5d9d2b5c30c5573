// The most hits that any cache of some size could have had in a trace, knowing the future: a ceiling for policies. An expert
// that is found must have stayed since its last use, so a hit is an interval of time that takes a slot; as many intervals as
// possible, never more at once than slots, are those that remain when each time the one that ends last is given up
// (Belady's rule, with the right not to keep what was just used). Holds for all who bring an expert only because it is used; who
// reads ahead may beat it.
import { type RoutingTrace, unionOf } from './routingTrace.js'

export interface OptimumOptions {
  readonly slots: number
  /** An expert takes its slot from its use on, or only from the end of that step: for tiers that move experts between steps. */
  readonly from: 'use' | 'stepEnd'
  /** Count only hits in steps of one token. */
  readonly decodeOnly?: boolean
}

export interface OptimalHits {
  readonly hits: number
  readonly wanted: number
}

export function optimalHits(trace: RoutingTrace, { slots, from, decodeOnly = false }: OptimumOptions): OptimalHits {
  const { layers, steps } = trace
  const turns = steps.flatMap(step =>
    Array.from({ length: layers }, (_, layer) => unionOf(step, layer, trace.expertsPerToken)),
  )
  const counts = (turn: number) => !decodeOnly || steps[Math.floor(turn / layers)].tokens === 1
  const nextTurns = nextUses(trace, turns)
  const kept = new LatestEnds()
  let hits = 0
  let wanted = 0
  let begun: [end: number, key: number][] = []
  for (const [turn, experts] of turns.entries()) {
    const layer = turn % layers
    for (const [i, expert] of experts.entries()) {
      const key = layer * trace.experts + expert
      if (counts(turn)) wanted++
      if (kept.delete(key)) hits++
      const end = nextTurns[turn][i]
      if (end >= 0 && counts(end)) begun.push([end, key])
    }
    if (from === 'stepEnd' && layer < layers - 1) continue
    for (const [end, key] of begun) kept.add(end, key)
    begun = []
    while (kept.size > slots) kept.dropLatest()
  }
  return { hits, wanted }
}

/** For each use the turn of the next one; -1: none. */
function nextUses({ layers, experts }: RoutingTrace, turns: readonly (readonly number[])[]): number[][] {
  const next = new Int32Array(layers * experts).fill(-1)
  const result: number[][] = new Array(turns.length)
  for (let turn = turns.length - 1; turn >= 0; turn--) {
    const first = (turn % layers) * experts
    result[turn] = turns[turn].map(expert => next[first + expert])
    for (const expert of turns[turn]) next[first + expert] = turn
  }
  return result
}

/** Intervals by key, and the one that ends last. Those that were deleted leave the heap when they come to its top. */
class LatestEnds {
  private readonly ends = new Map<number, number>() // key → turn
  private readonly heap: [end: number, key: number][] = [] // latest first

  get size(): number {
    return this.ends.size
  }

  delete(key: number): boolean {
    return this.ends.delete(key)
  }

  add(end: number, key: number): void {
    this.ends.set(key, end)
    const { heap } = this
    let at = heap.length
    while (at > 0 && heap[(at - 1) >> 1][0] < end) {
      heap[at] = heap[(at - 1) >> 1]
      at = (at - 1) >> 1
    }
    heap[at] = [end, key]
  }

  dropLatest(): void {
    for (;;) {
      const [end, key] = this.pop()
      if (this.ends.get(key) !== end) continue
      this.ends.delete(key)
      return
    }
  }

  private pop(): [end: number, key: number] {
    const { heap } = this
    const top = heap[0]
    const last = heap.pop() as [number, number]
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && heap[child + 1][0] > heap[child][0]) child++
      if (heap[child][0] <= last[0]) break
      heap[at] = heap[child]
      at = child
    }
    if (heap.length > 0) heap[at] = last
    return top
  }
}
