// Rules that begin with themselves, as people write them for lists and operators (`sum ::= sum "+" term | term`), become rules
// that do not, and match the same texts. Rules that begin with each other are a system of equations: each is made of
// beginnings that are none of them, and of one of them with something after it. What may be written is a beginning, and then
// a way through the things that come after, from rule to rule, up to the one that is wanted.
import { GrammarError } from '../../base/errors.js'
import type { CharRange } from '../automaton/byteAutomaton.js'

export type Expression =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'class'; readonly ranges: readonly CharRange[] }
  | { readonly kind: 'rule'; readonly name: string }
  | { readonly kind: 'sequence'; readonly items: readonly Expression[] }
  | { readonly kind: 'choice'; readonly options: readonly Expression[] }
  | { readonly kind: 'repeat'; readonly item: Expression; readonly min: number; readonly max: number }

type Rules = ReadonlyMap<string, Expression>

const MAX_CIRCLE = 32 // rules that begin with each other: the result grows with the square
const NOTHING: Expression = { kind: 'text', text: '' }

export function withoutLeftRecursion(rules: Rules): Map<string, Expression> {
  const out = new Map(rules)
  const nullable = nullableRules(rules)
  for (const circle of circles(rules, nullable)) {
    const [first] = circle
    if (circle.size > MAX_CIRCLE)
      throw new GrammarError(`${circle.size} rules begin with each other, ${first} among them`)
    for (const [name, body] of solved(rules, circle)) out.set(name, body)
  }
  return out
}

/** An option of a rule: one rule of the circle and what comes after it, or a beginning that is none. */
interface Option {
  readonly head: string | null
  readonly rest: Expression
}

function solved(rules: Rules, circle: ReadonlySet<string>): Map<string, Expression> {
  const names = [...circle]
  const options = new Map(names.map(name => [name, optionsOf(rules.get(name)!, circle)]))
  const way = (from: string, to: string): Expression => ({ kind: 'rule', name: `${from} to ${to}` })
  const out = new Map<string, Expression>()
  for (const to of names) {
    const beginnings: Expression[] = []
    for (const from of names) {
      for (const { head, rest } of options.get(from)!) {
        if (head === null) beginnings.push({ kind: 'sequence', items: [rest, way(from, to)] })
      }
      // What is read so far is a `from`; it may be the head of any rule's option, and then it is one of that rule.
      const steps: Expression[] = from === to ? [NOTHING] : []
      for (const next of names) {
        for (const { head, rest } of options.get(next)!) {
          if (head === from && !(rest === NOTHING && next === from)) {
            steps.push({ kind: 'sequence', items: [rest, way(next, to)] })
          }
        }
      }
      out.set(`${from} to ${to}`, { kind: 'choice', options: steps })
    }
    out.set(to, { kind: 'choice', options: beginnings })
  }
  return out
}

function optionsOf(expression: Expression, circle: ReadonlySet<string>): Option[] {
  switch (expression.kind) {
    case 'rule':
      return circle.has(expression.name)
        ? [{ head: expression.name, rest: NOTHING }]
        : [{ head: null, rest: expression }]
    case 'choice':
      return expression.options.flatMap(option => optionsOf(option, circle))
    case 'sequence': {
      const [first, ...others] = expression.items
      if (others.length === 0) return optionsOf(first, circle)
      return optionsOf(first, circle).map(({ head, rest }) => ({
        head,
        rest: { kind: 'sequence', items: rest === NOTHING ? others : [rest, ...others] },
      }))
    }
    default:
      return [{ head: null, rest: expression }]
  }
}

function nullableRules(rules: Rules): Set<string> {
  const nullable = new Set<string>()
  const users = new Map<string, string[]>([...rules.keys()].map(name => [name, []]))
  for (const [name, body] of rules) for (const used of rulesIn(body, new Set())) users.get(used)!.push(name)
  const agenda = [...rules.keys()]
  for (let name = agenda.pop(); name !== undefined; name = agenda.pop()) {
    if (nullable.has(name) || !mayBeEmpty(rules.get(name)!, nullable)) continue
    nullable.add(name)
    agenda.push(...users.get(name)!)
  }
  return nullable
}

function rulesIn(expression: Expression, into: Set<string>): Set<string> {
  if (expression.kind === 'rule') into.add(expression.name)
  else if (expression.kind === 'repeat') rulesIn(expression.item, into)
  else if (expression.kind === 'sequence') for (const item of expression.items) rulesIn(item, into)
  else if (expression.kind === 'choice') for (const option of expression.options) rulesIn(option, into)
  return into
}

function mayBeEmpty(expression: Expression, nullable: ReadonlySet<string>): boolean {
  switch (expression.kind) {
    case 'text':
      return expression.text === ''
    case 'class':
      return false
    case 'rule':
      return nullable.has(expression.name)
    case 'sequence':
      return expression.items.every(item => mayBeEmpty(item, nullable))
    case 'choice':
      return expression.options.some(option => mayBeEmpty(option, nullable))
    case 'repeat':
      return expression.min === 0 || mayBeEmpty(expression.item, nullable)
  }
}

/** The rules that a text of this one may begin with. */
function beginnings(expression: Expression, nullable: ReadonlySet<string>, into: Set<string>): Set<string> {
  switch (expression.kind) {
    case 'rule':
      into.add(expression.name)
      break
    case 'choice':
      for (const option of expression.options) beginnings(option, nullable, into)
      break
    case 'repeat':
      beginnings(expression.item, nullable, into)
      break
    case 'sequence':
      for (const item of expression.items) {
        beginnings(item, nullable, into)
        if (!mayBeEmpty(item, nullable)) break
      }
  }
  return into
}

/** Sets of rules of which each may begin with each, by Tarjan's algorithm with a stack of its own. */
function circles(rules: Rules, nullable: ReadonlySet<string>): Set<string>[] {
  const edges = new Map([...rules].map(([name, body]) => [name, [...beginnings(body, nullable, new Set())]]))
  const index = new Map<string, number>()
  const low = new Map<string, number>()
  const open: string[] = []
  const isOpen = new Set<string>()
  const found: Set<string>[] = []
  const enter = (name: string, trail: { name: string; next: number }[]) => {
    index.set(name, index.size)
    low.set(name, index.get(name)!)
    open.push(name)
    isOpen.add(name)
    trail.push({ name, next: 0 })
  }
  for (const root of rules.keys()) {
    if (index.has(root)) continue
    const trail: { name: string; next: number }[] = []
    enter(root, trail)
    while (trail.length > 0) {
      const frame = trail[trail.length - 1]
      const { name } = frame
      const child = edges.get(name)![frame.next++]
      if (child !== undefined) {
        if (!index.has(child)) enter(child, trail)
        else if (isOpen.has(child)) low.set(name, Math.min(low.get(name)!, index.get(child)!))
        continue
      }
      trail.pop()
      const parent = trail.at(-1)?.name
      if (parent !== undefined) low.set(parent, Math.min(low.get(parent)!, low.get(name)!))
      if (low.get(name) !== index.get(name)) continue
      const circle = new Set<string>()
      let member: string
      do {
        member = open.pop()!
        isOpen.delete(member)
        circle.add(member)
      } while (member !== name)
      if (circle.size > 1 || edges.get(name)!.includes(name)) found.push(circle)
    }
  }
  return found
}
