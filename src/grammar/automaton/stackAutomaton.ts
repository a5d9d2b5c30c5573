// Walks a program byte by byte. Where a walk stands is a set of stacks, since a grammar may be read in several ways: the top
// of each is what must come next (bytes of a literal, a character of a class), below it what follows after that. Sets that
// are alike have one number, so that where a byte leads from a set is found once and remembered: after a while a walk is a
// look into a table.
//
// What a step costs depends on the grammar. Every step is counted, and who asks says how many it may take.
import { CHAR_END } from './byteAutomaton.js'
import { Closure } from './closure.js'
import { NodeKind, type Program, UNBOUNDED } from './program.js'
import { BOTTOM, type Cell, DEAD, DONE, type Item, type StackSet, StackTables } from './stackTables.js'
import type { ByteWalk } from './tokenTrie.js'

const UNKNOWN = -1

export class StackAutomaton implements ByteWalk {
  private readonly tables = new StackTables()
  private readonly rows: (Int32Array | undefined)[] = []
  private rowCount = 0
  private readonly far = new Map<StackSet, boolean>()
  private readonly near = new Map<StackSet, StackSet>()
  readonly start: StackSet

  /** Counts that no text of up to `horizon` bytes can use up may be taken for endless: see `nearby`. */
  constructor(
    private readonly program: Program,
    private readonly horizon: number,
    steps: number,
  ) {
    this.allow(steps)
    const closure = new Closure(this.tables, program)
    closure.enter(program.root, DONE)
    this.start = closure.finish()
  }

  /** How many more steps may be taken before AmbiguousGrammarError. */
  allow(steps: number): void {
    this.tables.allow(steps)
  }

  /** Roughly the memory that all this takes. */
  get bytes(): number {
    return this.tables.bytes + 1100 * this.rowCount + 100 * this.far.size
  }

  isComplete(set: StackSet): boolean {
    return this.tables.stacks(set)[0] === BOTTOM
  }

  row(set: StackSet): Int32Array {
    const row = this.rows[set]
    if (row !== undefined) return row
    this.rowCount++
    return (this.rows[set] = new Int32Array(256).fill(UNKNOWN))
  }

  step(set: StackSet, byte: number): StackSet {
    const row = this.row(set)
    if (row[byte] !== UNKNOWN) return row[byte]
    const { tables, program } = this
    const { lists, bytes } = program
    const closure = new Closure(tables, program)
    const stacks = tables.stacks(set)
    tables.spend(stacks.length)
    for (const cell of stacks) {
      if (cell === BOTTOM) continue
      const item = tables.top(cell)
      const below = tables.below(cell)
      const first = tables.first(item)
      if (tables.kind(item) === NodeKind.literal) {
        if (bytes[first] !== byte) continue
        if (first + 1 === tables.second(item)) closure.resume(below)
        else closure.add(tables.item(NodeKind.literal, first + 1, tables.second(item)), below)
      } else {
        for (let edge = first + 1; edge < first + 1 + 3 * lists[first]; edge += 3) {
          if (byte < lists[edge] || byte > lists[edge + 1]) continue
          if (lists[edge + 2] === CHAR_END) closure.resume(below)
          else closure.add(tables.item(NodeKind.charClass, lists[edge + 2]), below)
        }
      }
    }
    return (row[byte] = closure.finish())
  }

  /** A set that any text of up to `horizon` bytes leads through in the same way. Far fewer sets differ by that. */
  nearby(set: StackSet): StackSet {
    if (!this.isFar(set)) return set
    return this.rebuilt(set, this.near, (item, below) => this.tables.cell(this.nearbyItem(item), below), this.tables)
  }

  /** The same set in another automaton of the same program, which is how memory that is not needed is given back. */
  moveTo(other: StackAutomaton, set: StackSet): StackSet {
    const { tables } = this
    const copy = (item: Item, below: StackSet) => {
      const numbers = [tables.first(item), tables.second(item), tables.third(item)] as const
      return other.tables.cell(other.tables.item(tables.kind(item), ...numbers), below)
    }
    return this.rebuilt(set, new Map(), copy, other.tables)
  }

  /** A set whose stacks are made anew from the bottom up, without recursion: they may be as deep as an answer is long. */
  private rebuilt(
    set: StackSet,
    known: Map<StackSet, StackSet>,
    rebuild: (item: Item, below: StackSet) => Cell,
    into: StackTables,
  ): StackSet {
    const { tables } = this
    known.set(DEAD, DEAD).set(DONE, DONE)
    const agenda = [set]
    while (agenda.length > 0) {
      const top = agenda[agenda.length - 1]
      const stacks = tables.stacks(top)
      const missing = stacks.map(cell => tables.below(cell)).filter(below => !known.has(below))
      if (missing.length > 0) {
        for (const below of missing) agenda.push(below)
        continue
      }
      agenda.pop()
      if (known.has(top)) continue
      tables.spend(stacks.length)
      const cells = stacks.map(cell =>
        cell === BOTTOM ? BOTTOM : rebuild(tables.top(cell), known.get(tables.below(cell))!),
      )
      known.set(top, into.set(cells))
    }
    return known.get(set)!
  }

  /** Whether some count in the set is past the horizon. */
  private isFar(set: StackSet): boolean {
    const { tables, far } = this
    far.set(DEAD, false).set(DONE, false)
    const agenda = [set]
    while (agenda.length > 0) {
      const top = agenda[agenda.length - 1]
      const stacks = tables.stacks(top)
      const missing = stacks.map(cell => tables.below(cell)).filter(below => !far.has(below))
      if (missing.length > 0) {
        for (const below of missing) agenda.push(below)
        continue
      }
      agenda.pop()
      if (far.has(top)) continue
      tables.spend(stacks.length)
      far.set(
        top,
        stacks.some(cell => cell !== BOTTOM && (this.isFarItem(tables.top(cell)) || far.get(tables.below(cell))!)),
      )
    }
    return far.get(set)!
  }

  private isFarItem(item: Item): boolean {
    const { tables } = this
    if (tables.kind(item) !== NodeKind.repeat) return false
    return this.isFarCount(tables.second(item)) || this.isFarCount(tables.third(item))
  }

  private isFarCount(count: number): boolean {
    return count > this.horizon && count !== UNBOUNDED
  }

  private nearbyItem(item: Item): Item {
    if (!this.isFarItem(item)) return item
    const { tables } = this
    const least = this.isFarCount(tables.second(item)) ? UNBOUNDED : tables.second(item)
    const most = this.isFarCount(tables.third(item)) ? UNBOUNDED : tables.third(item)
    return tables.item(NodeKind.repeat, tables.first(item), least, most)
  }
}
