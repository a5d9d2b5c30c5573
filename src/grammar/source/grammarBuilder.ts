// Puts a grammar together, node by node. A node that is like one before is that one, so that a grammar is as large as what
// is different in it. Its size is bounded while it grows, not afterwards. Rules that refer to each other, or to themselves,
// are promised first and kept later.
import { GrammarError } from '../../base/errors.js'
import { addByteAutomaton, type CharRange } from '../automaton/byteAutomaton.js'
import { type Draft, EMPTY_NODE, NEVER_NODE, NodeKind, type Program, UNBOUNDED } from '../automaton/program.js'
import { finishProgram } from '../automaton/programChecks.js'
import { type Marks, markBytes, splitAtMarks } from './marks.js'

export type Node = number

export interface GrammarLimits {
  readonly nodes: number
  readonly bytes: number // of literals
}

export const DEFAULT_GRAMMAR_LIMITS: GrammarLimits = { nodes: 400_000, bytes: 4 * 2 ** 20 }

/** A grammar that grows past its limits. */
export class GrammarSizeError extends GrammarError {}

export class GrammarBuilder {
  private readonly draft: Draft = { kinds: [], first: [], second: [], third: [], lists: [], bytes: [] }
  private readonly known = new Map<string, Node>()
  private readonly states = new Map<string, number>()
  readonly empty: Node = EMPTY_NODE
  readonly never: Node = NEVER_NODE

  constructor(private readonly limits: GrammarLimits = DEFAULT_GRAMMAR_LIMITS) {
    this.node(null, NodeKind.empty)
    this.node(null, NodeKind.choice)
  }

  /** How large the grammar is by now. */
  get size(): number {
    return this.draft.kinds.length
  }

  literal(text: string): Node {
    if (text === '') return this.empty
    const before = this.known.get(`"${text}`)
    if (before !== undefined) return before
    const { bytes } = this.draft
    const from = bytes.length
    if (from + text.length > this.limits.bytes) {
      throw new GrammarSizeError(`the grammar has more than ${this.limits.bytes} bytes of text`)
    }
    for (const byte of encoder.encode(text)) bytes.push(byte)
    return this.node(`"${text}`, NodeKind.literal, from, bytes.length)
  }

  /** A text in which some words are tokens of their own: those match as such, and only so. */
  marked(text: string, marks: Marks): Node {
    return this.sequence(
      splitAtMarks(text, marks).map(part => (typeof part === 'string' ? this.literal(part) : this.mark(part))),
    )
  }

  /** One character out of `ranges`, as UTF-8. */
  charClass(ranges: readonly CharRange[]): Node {
    const state = addByteAutomaton(ranges, numbers => this.state(numbers))
    return state < 0 ? this.never : this.node(`[${state}`, NodeKind.charClass, state)
  }

  sequence(items: readonly Node[]): Node {
    const kept = items.filter(item => item !== this.empty)
    if (kept.length === 0) return this.empty
    return kept.length === 1 ? kept[0] : this.list(NodeKind.sequence, kept)
  }

  choice(options: readonly Node[]): Node {
    const kept = [...new Set(options)].filter(option => option !== this.never)
    if (kept.length === 0) return this.never
    return kept.length === 1 ? kept[0] : this.list(NodeKind.choice, kept)
  }

  optional(item: Node): Node {
    return this.repeat(item, 0, 1)
  }

  repeat(item: Node, min: number, max: number = UNBOUNDED): Node {
    if (max < min) return this.never
    if (max === 0 || item === this.empty) return this.empty
    if (min === 1 && max === 1) return item
    const most = Math.min(max, UNBOUNDED)
    return this.node(`{${item},${min},${most}`, NodeKind.repeat, item, Math.min(min, UNBOUNDED), most)
  }

  /** A rule whose body is told later. */
  promise(): Node {
    return this.node(null, NodeKind.rule, -1)
  }

  keep(rule: Node, body: Node): void {
    this.draft.first[rule] = body
  }

  /** The grammar of `root` alone. Throws EndlessGrammarError or LeftRecursionError where that is what it is. */
  finish(root: Node): Program {
    return finishProgram(this.draft, root)
  }

  private mark(index: number): Node {
    const before = this.known.get(`#${index}`)
    if (before !== undefined) return before
    const { bytes } = this.draft
    const from = bytes.length
    bytes.push(...markBytes(index))
    return this.node(`#${index}`, NodeKind.literal, from, bytes.length)
  }

  private list(kind: number, items: readonly Node[]): Node {
    const key = `${kind}:${items.join()}`
    const before = this.known.get(key)
    if (before !== undefined) return before
    const { lists } = this.draft
    const from = lists.length
    for (const item of items) lists.push(item)
    this.check()
    return this.node(key, kind, from, lists.length)
  }

  private state(numbers: readonly number[]): number {
    const key = numbers.join()
    const before = this.states.get(key)
    if (before !== undefined) return before
    const { lists } = this.draft
    const at = lists.length
    for (const number of numbers) lists.push(number)
    this.states.set(key, at)
    this.check()
    return at
  }

  private node(key: string | null, kind: number, first = 0, second = 0, third = 0): Node {
    const before = key === null ? undefined : this.known.get(key)
    if (before !== undefined) return before
    const { draft } = this
    const node = draft.kinds.length
    draft.kinds.push(kind)
    draft.first.push(first)
    draft.second.push(second)
    draft.third.push(third)
    if (key !== null) this.known.set(key, node)
    this.check()
    return node
  }

  private check(): void {
    const { nodes } = this.limits
    const { kinds, lists } = this.draft
    if (kinds.length > nodes || lists.length > 4 * nodes) {
      throw new GrammarSizeError(`the grammar has more than ${nodes} parts`)
    }
  }
}

const encoder = new TextEncoder()
