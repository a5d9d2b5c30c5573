// Stacks and sets of stacks, each of which exists once and is known by a number. A stack is a cell: an item on top of a set
// of stacks. Stacks share their lower parts, and ones with the same item on top can be one cell over several lower parts,
// so that sets stay small where the number of ways to read a grammar explodes. How often something is still to be
// repeated is a number of an item, never a copy of the grammar.
import { GrammarError } from '../../base/errors.js'
import { MAX_REPEAT, NodeKind, UNBOUNDED } from './program.js'

/** What is on a stack, by a kind of node: the rest of a literal, class, sequence or repeat, with its numbers there. */
export type Item = number
export type Cell = number
/** A set of stacks. DEAD has none: nothing can come. DONE has the empty stack alone: the text is complete. */
export type StackSet = number

export const BOTTOM: Cell = 0 // the empty stack
export const DEAD: StackSet = 0
export const DONE: StackSet = 1

/** More than there are items, sets, or places in a program. */
export const SPAN = 2 ** 26

/** A grammar with more ways to be read at once than there is time for. */
export class AmbiguousGrammarError extends GrammarError {}

export class StackTables {
  private readonly kinds: number[] = []
  private readonly firsts: number[] = []
  private readonly seconds: number[] = []
  private readonly thirds: number[] = []
  private readonly items = new Map<number, Item>()
  private readonly repeats = new Map<number, Map<number, Item>>()
  private readonly cellItems: Item[] = [-1]
  private readonly cellBelow: StackSet[] = [DEAD]
  private readonly cells = new Map<number, Cell>()
  private readonly setCells: (readonly Cell[])[] = [[], [BOTTOM]]
  private readonly single = new Map<Cell, StackSet>([[BOTTOM, DONE]])
  private readonly several = new Map<string, StackSet>([['', DEAD]])
  private stepsLeft = 0

  /** How many more steps may be taken before AmbiguousGrammarError. */
  allow(steps: number): void {
    this.stepsLeft = steps
  }

  spend(steps: number): void {
    this.stepsLeft -= steps
    if (this.stepsLeft < 0) throw new AmbiguousGrammarError('the grammar can be read in too many ways at once')
  }

  /** Roughly the memory that all this takes. */
  get bytes(): number {
    return 120 * (this.cellItems.length + this.setCells.length) + 80 * this.kinds.length
  }

  item(kind: number, first: number, second = 0, third = 0): Item {
    let table = this.items
    // Classes and sequences have their places in one list, and a class has no second number.
    let key = (kind === NodeKind.literal ? second + SPAN : second) * SPAN + first
    if (kind === NodeKind.repeat) {
      table = this.repeats.get(first) ?? new Map()
      this.repeats.set(first, table)
      key = countKey(second) * 2 * MAX_REPEAT + countKey(third)
    }
    const before = table.get(key)
    if (before !== undefined) return before
    const item = this.kinds.push(kind) - 1
    this.firsts.push(first)
    this.seconds.push(second)
    this.thirds.push(third)
    table.set(key, item)
    return item
  }

  kind(item: Item): number {
    return this.kinds[item]
  }

  first(item: Item): number {
    return this.firsts[item]
  }

  second(item: Item): number {
    return this.seconds[item]
  }

  third(item: Item): number {
    return this.thirds[item]
  }

  cell(item: Item, below: StackSet): Cell {
    const key = item * SPAN + below
    const before = this.cells.get(key)
    if (before !== undefined) return before
    const cell = this.cellItems.push(item) - 1
    this.cellBelow.push(below)
    this.cells.set(key, cell)
    return cell
  }

  top(cell: Cell): Item {
    return this.cellItems[cell]
  }

  below(cell: Cell): StackSet {
    return this.cellBelow[cell]
  }

  /** The stacks of a set, the empty one first. */
  stacks(set: StackSet): readonly Cell[] {
    return this.setCells[set]
  }

  /** The set of one stack: `item` on top of `below`. */
  push(item: Item, below: StackSet): StackSet {
    return this.singleton(this.cell(item, below))
  }

  set(cells: readonly Cell[]): StackSet {
    const sorted = [...new Set(cells)].sort((a, b) => a - b)
    if (sorted.length === 1) return this.singleton(sorted[0])
    const key = sorted.join()
    const before = this.several.get(key)
    if (before !== undefined) return before
    const set = this.setCells.push(sorted) - 1
    this.several.set(key, set)
    return set
  }

  private singleton(cell: Cell): StackSet {
    const before = this.single.get(cell)
    if (before !== undefined) return before
    const set = this.setCells.push([cell]) - 1
    this.single.set(cell, set)
    return set
  }
}

const countKey = (count: number): number => (count === UNBOUNDED ? MAX_REPEAT + 1 : count)
