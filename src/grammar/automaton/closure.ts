// Everything that may come next from some places in a grammar: follows whatever takes no byte. Nodes are taken in the
// program's order, outer ones first, so that a node is entered once with all that may come after it, however many ways
// lead to it: a closure costs no more than the grammar is large, beside what lies on the stacks.
import { Heap } from '../../base/heap.js'
import { NodeKind, type Program, UNBOUNDED } from './program.js'
import { BOTTOM, type Cell, type Item, SPAN, type StackSet, type StackTables } from './stackTables.js'

/** Nodes are numbered in the program's order. */
const isBefore = (node: number, other: number): boolean => node < other

export class Closure {
  private readonly tops = new Map<Item, StackSet[]>() // what takes a byte, and all that lies below each
  private isDone = false
  private readonly seen = new Set<number>()
  private readonly items: Item[] = [] // to be followed, each on top of its set
  private readonly belowItems: StackSet[] = []
  private readonly waiting = new Map<number, StackSet[]>() // nodes to be entered
  private readonly order = new Heap(isBefore, null)

  constructor(
    private readonly tables: StackTables,
    private readonly program: Program,
  ) {}

  /** `item` takes a byte. */
  add(item: Item, below: StackSet): void {
    const known = this.tops.get(item)
    if (known === undefined) this.tops.set(item, [below])
    else known.push(below)
  }

  /** What was on top is read: goes on with what is below. */
  resume(below: StackSet): void {
    for (const cell of this.tables.stacks(below)) {
      if (cell === BOTTOM) this.isDone = true
      else {
        const item = this.tables.top(cell)
        if (!this.isNew(SPAN / 2 + item, this.tables.below(cell))) continue
        this.items.push(item)
        this.belowItems.push(this.tables.below(cell))
      }
    }
  }

  enter(node: number, below: StackSet): void {
    const { kinds, nullable, first, second } = this.program
    if (!this.isNew(node, below)) return
    if (nullable[node] === 1) this.resume(below)
    if (kinds[node] === NodeKind.literal) {
      this.add(this.tables.item(NodeKind.literal, first[node], second[node]), below)
    } else if (kinds[node] === NodeKind.charClass) {
      this.add(this.tables.item(NodeKind.charClass, first[node]), below)
    } else if (kinds[node] !== NodeKind.empty) {
      const known = this.waiting.get(node)
      if (known !== undefined) known.push(below)
      else {
        this.waiting.set(node, [below])
        this.order.add(node)
      }
    }
  }

  finish(): StackSet {
    const { tables, items, belowItems } = this
    for (;;) {
      for (let item = items.pop(); item !== undefined; item = items.pop()) this.followItem(item, belowItems.pop()!)
      const node = this.order.take()
      if (node === undefined) break
      const belows = this.waiting.get(node)!
      this.waiting.delete(node)
      this.followNode(node, this.union(belows))
    }
    const cells: Cell[] = this.isDone ? [BOTTOM] : []
    for (const [item, belows] of this.tops) cells.push(tables.cell(item, this.union(belows)))
    return tables.set(cells)
  }

  private isNew(place: number, below: StackSet): boolean {
    const key = place * SPAN + below
    if (this.seen.has(key)) return false
    this.seen.add(key)
    this.tables.spend(1)
    return true
  }

  private followNode(node: number, below: StackSet): void {
    const { kinds, first, second, third, lists } = this.program
    if (kinds[node] === NodeKind.sequence) this.followSequence(first[node], second[node], below)
    else if (kinds[node] === NodeKind.repeat) this.followRepeat(first[node], second[node], third[node], below)
    else for (let i = first[node]; i < second[node]; i++) this.enter(lists[i], below)
  }

  private followItem(item: Item, below: StackSet): void {
    const { tables } = this
    const kind = tables.kind(item)
    const first = tables.first(item)
    const second = tables.second(item)
    if (kind === NodeKind.sequence) this.followSequence(first, second, below)
    else if (kind === NodeKind.repeat) {
      if (second === 0) this.resume(below)
      this.followRepeat(first, second, tables.third(item), below)
    } else this.add(item, below)
  }

  private followSequence(from: number, to: number, below: StackSet): void {
    const { tables } = this
    const rest = from + 1 < to ? tables.push(tables.item(NodeKind.sequence, from + 1, to), below) : below
    this.enter(this.program.lists[from], rest)
  }

  private followRepeat(item: number, least: number, most: number, below: StackSet): void {
    const { tables } = this
    const left = most === UNBOUNDED ? UNBOUNDED : most - 1
    const need = least === UNBOUNDED ? UNBOUNDED : Math.max(0, least - 1)
    const rest = left === 0 ? below : tables.push(tables.item(NodeKind.repeat, item, need, left), below)
    this.enter(item, rest)
  }

  private union(sets: readonly StackSet[]): StackSet {
    if (sets.length === 1) return sets[0]
    const cells = sets.flatMap(set => this.tables.stacks(set))
    this.tables.spend(cells.length)
    return this.tables.set(cells)
  }
}
