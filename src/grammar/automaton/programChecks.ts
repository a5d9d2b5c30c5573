// Turns a draft into a program: what the root does not reach is left out, and so are options that could never end, which
// would only lead the sampler into a dead end. A grammar that cannot end at all, or that a walk would go round in
// without reading anything, is refused. Every pass takes time in proportion to the grammar's size, and none recurses.
import { GrammarError } from '../../base/errors.js'
import { type Draft, NEVER_NODE, NodeKind, type Program } from './program.js'

/** No text at all matches, or none that ends. */
export class EndlessGrammarError extends GrammarError {}

/** A rule begins with itself. */
export class LeftRecursionError extends GrammarError {}

/** The nodes that matter, the root first, and what they are made of: node i has children[start[i]] up to start[i + 1]. */
interface Graph {
  readonly nodes: Int32Array // as the draft numbers them
  readonly kinds: Uint8Array
  readonly least: Int32Array // of repeats
  readonly start: Int32Array
  readonly children: Int32Array
}

export function finishProgram(draft: Draft, root: number): Program {
  const graph = reachable(draft, root)
  const ends = fixpoint(graph, () => true)
  if (ends[0] === 0) throw new EndlessGrammarError('the grammar matches no text that ends')
  const living = withoutDeadOptions(graph, ends)
  const nullable = fixpoint(living, kind => kind === NodeKind.empty)
  return emit(draft, living, outerFirst(living, ends, nullable), nullable)
}

function reachable(draft: Draft, root: number): Graph {
  const place = new Map<number, number>()
  const nodes: number[] = []
  const start: number[] = [0]
  const children: number[] = []
  /** The place of a node, or of what a rule leads to. Rules that lead round in a circle match nothing. */
  const visit = (node: number): number => {
    const passed = new Set<number>()
    while (draft.kinds[node] === NodeKind.rule && !place.has(node)) {
      passed.add(node)
      node = draft.first[node]
      if (node < 0) throw new Error('a rule was promised and not kept')
      if (passed.has(node)) node = NEVER_NODE
    }
    const at = place.get(node) ?? nodes.push(node) - 1
    place.set(node, at)
    for (const rule of passed) place.set(rule, at)
    return at
  }
  visit(root)
  for (let at = 0; at < nodes.length; at++) {
    const node = nodes[at]
    const kind = draft.kinds[node]
    if (kind === NodeKind.repeat) children.push(visit(draft.first[node]))
    else if (kind === NodeKind.sequence || kind === NodeKind.choice) {
      for (let i = draft.first[node]; i < draft.second[node]; i++) children.push(visit(draft.lists[i]))
    }
    start.push(children.length)
  }
  return {
    nodes: Int32Array.from(nodes),
    kinds: Uint8Array.from(nodes, node => draft.kinds[node]),
    least: Int32Array.from(nodes, node => (draft.kinds[node] === NodeKind.repeat ? draft.second[node] : 0)),
    start: Int32Array.from(start),
    children: Int32Array.from(children),
  }
}

/** The least set of nodes with: leaves that `leafIn` names, sequences all of it, choices any of it, repeats likewise. */
function fixpoint({ kinds, least, start, children }: Graph, leafIn: (kind: number) => boolean): Uint8Array {
  const count = kinds.length
  const parents = parentsOf(start, children)
  const member = new Uint8Array(count)
  const childrenIn = new Int32Array(count)
  const agenda: number[] = []
  const ask = (node: number) => {
    if (member[node] === 1) return
    const kind = kinds[node]
    const holds =
      kind === NodeKind.sequence
        ? childrenIn[node] === start[node + 1] - start[node]
        : kind === NodeKind.choice
          ? childrenIn[node] > 0
          : kind === NodeKind.repeat
            ? least[node] === 0 || childrenIn[node] > 0
            : leafIn(kind)
    if (!holds) return
    member[node] = 1
    agenda.push(node)
  }
  for (let node = 0; node < count; node++) ask(node)
  for (let node = agenda.pop(); node !== undefined; node = agenda.pop()) {
    for (let i = parents.start[node]; i < parents.start[node + 1]; i++) {
      childrenIn[parents.nodes[i]]++
      ask(parents.nodes[i])
    }
  }
  return member
}

function parentsOf(start: Int32Array, children: Int32Array): { start: Int32Array; nodes: Int32Array } {
  const begin = new Int32Array(start.length)
  for (const child of children) begin[child + 1]++
  for (let node = 1; node < begin.length; node++) begin[node] += begin[node - 1]
  const next = begin.slice()
  const nodes = new Int32Array(children.length)
  for (let node = 0; node + 1 < start.length; node++) {
    for (let i = start[node]; i < start[node + 1]; i++) nodes[next[children[i]]++] = node
  }
  return { start: begin, nodes }
}

/** Options that cannot end are gone, and so is what is repeated and cannot end: it is there not once. */
function withoutDeadOptions({ kinds, start, children, ...rest }: Graph, ends: Uint8Array): Graph {
  const living: number[] = []
  const newStart = [0]
  const newKinds = kinds.slice()
  for (let node = 0; node < kinds.length; node++) {
    for (let i = start[node]; i < start[node + 1]; i++) {
      if (ends[children[i]] === 1) living.push(children[i])
      else if (kinds[node] === NodeKind.repeat) newKinds[node] = NodeKind.empty
    }
    newStart.push(living.length)
  }
  return { ...rest, kinds: newKinds, start: Int32Array.from(newStart), children: Int32Array.from(living) }
}

/**
 * The nodes in an order in which each comes before all that a text of it may begin with, so that a walk that takes them in
 * this order meets each of them once. There is none where a rule begins with itself.
 */
function outerFirst({ kinds, start, children }: Graph, ends: Uint8Array, nullable: Uint8Array): number[] {
  const state = new Uint8Array(kinds.length) // 1: open, 2: done
  const next = start.slice() // the child to look at
  const done: number[] = []
  const isOver = (node: number) => {
    const at = next[node]
    if (at === start[node + 1]) return true
    // A sequence begins with its first item, and with the one after an item that may be empty.
    return kinds[node] === NodeKind.sequence && at > start[node] && nullable[children[at - 1]] === 0
  }
  for (let root = 0; root < kinds.length; root++) {
    if (state[root] !== 0 || ends[root] === 0) continue
    const trail = [root]
    state[root] = 1
    while (trail.length > 0) {
      const node = trail[trail.length - 1]
      if (isOver(node)) {
        state[node] = 2
        done.push(node)
        trail.pop()
        continue
      }
      const child = children[next[node]++]
      if (state[child] === 1) throw new LeftRecursionError('a rule begins with itself')
      if (state[child] === 0) {
        state[child] = 1
        trail.push(child)
      }
    }
  }
  return done.reverse()
}

function emit(draft: Draft, graph: Graph, order: readonly number[], nullable: Uint8Array): Program {
  const { nodes, kinds, least, start, children } = graph
  const place = new Int32Array(nodes.length)
  for (const [at, node] of order.entries()) place[node] = at
  const first = new Int32Array(order.length)
  const second = new Int32Array(order.length)
  const third = new Int32Array(order.length)
  const lists: number[] = []
  const bytes: number[] = []
  const states = new Map<number, number>()
  order.forEach((node, at) => {
    const drafted = nodes[node]
    if (kinds[node] === NodeKind.literal) {
      first[at] = bytes.length
      for (let i = draft.first[drafted]; i < draft.second[drafted]; i++) bytes.push(draft.bytes[i])
      second[at] = bytes.length
    } else if (kinds[node] === NodeKind.charClass) {
      first[at] = copyState(draft.lists, draft.first[drafted], lists, states)
    } else if (kinds[node] === NodeKind.repeat) {
      const item = children[start[node]]
      first[at] = place[item]
      second[at] = nullable[item] === 1 ? 0 : least[node] // an item that may be empty is there often enough
      third[at] = draft.third[drafted]
    } else if (kinds[node] === NodeKind.sequence || kinds[node] === NodeKind.choice) {
      first[at] = lists.length
      for (let i = start[node]; i < start[node + 1]; i++) lists.push(place[children[i]])
      second[at] = lists.length
    }
  })
  return {
    kinds: Uint8Array.from(order, node => kinds[node]),
    nullable: Uint8Array.from(order, node => nullable[node]),
    first,
    second,
    third,
    lists: Int32Array.from(lists),
    bytes: Uint8Array.from(bytes),
    root: place[0],
  }
}

/** A class's automaton with the states that it leads to, at most three of them in a row. */
function copyState(from: readonly number[], at: number, into: number[], known: Map<number, number>): number {
  const before = known.get(at)
  if (before !== undefined) return before
  const edges = from[at]
  const run = [edges]
  for (let edge = at + 1; edge < at + 1 + 3 * edges; edge += 3) {
    const next = from[edge + 2]
    run.push(from[edge], from[edge + 1], next < 0 ? next : copyState(from, next, into, known))
  }
  const place = into.length
  for (const number of run) into.push(number)
  known.set(at, place)
  return place
}
