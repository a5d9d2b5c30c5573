// A grammar as a tree, and its text in the EBNF that xgrammar reads. The tree exists so that a schema's grammar can be
// checked (does it ever end? does a rule begin with itself?) before any text is made of it.

export type Node =
  | { readonly kind: 'literal'; readonly text: string }
  | { readonly kind: 'class'; readonly ranges: readonly CharRange[] }
  | { readonly kind: 'sequence'; readonly items: readonly Node[] }
  | { readonly kind: 'choice'; readonly options: readonly Node[] } // no options: matches nothing
  | { readonly kind: 'repeat'; readonly item: Node; readonly min: number; readonly max: number } // max may be Infinity
  | { readonly kind: 'rule'; readonly name: string }

export type CharRange = readonly [first: number, last: number] // code points, inclusive

/** All of Unicode past ASCII. xgrammar gets positive classes past ASCII wrong, so a class has all of it or none. */
export const BEYOND_ASCII: CharRange = [0x80, 0x10ffff]

export const literal = (text: string): Node => ({ kind: 'literal', text })
export const sequence = (...items: Node[]): Node => (items.length === 1 ? items[0] : { kind: 'sequence', items })
export const choice = (...options: Node[]): Node => (options.length === 1 ? options[0] : { kind: 'choice', options })
export const optional = (item: Node): Node => ({ kind: 'repeat', item, min: 0, max: 1 })
export const rule = (name: string): Node => ({ kind: 'rule', name })
export const empty: Node = literal('')

export function repeat(item: Node, min: number, max: number): Node {
  return max === 0 ? empty : { kind: 'repeat', item, min, max }
}

export function charClass(...ranges: CharRange[]): Node {
  return { kind: 'class', ranges }
}

export type Rules = ReadonlyMap<string, Node>

/** The rules that can match some finite text. A grammar whose root is not among them would never end. */
export function productiveRules(rules: Rules): Set<string> {
  const productive = new Set<string>()
  const ends = (node: Node): boolean => {
    switch (node.kind) {
      case 'literal':
        return true
      case 'class':
        return node.ranges.length > 0
      case 'sequence':
        return node.items.every(ends)
      case 'choice':
        return node.options.some(ends)
      case 'repeat':
        return node.min === 0 || ends(node.item)
      case 'rule':
        return productive.has(node.name)
    }
  }
  for (let grew = true; grew; ) {
    grew = false
    for (const [name, body] of rules) {
      if (!productive.has(name) && ends(body)) {
        productive.add(name)
        grew = true
      }
    }
  }
  return productive
}

/** Whether some rule can begin with itself: a parser would go round in it without reading anything. */
export function hasLeftRecursion(rules: Rules): boolean {
  const nullable = new Set<string>()
  const isEmpty = (node: Node): boolean => {
    switch (node.kind) {
      case 'literal':
        return node.text === ''
      case 'class':
        return false
      case 'sequence':
        return node.items.every(isEmpty)
      case 'choice':
        return node.options.some(isEmpty)
      case 'repeat':
        return node.min === 0 || isEmpty(node.item)
      case 'rule':
        return nullable.has(node.name)
    }
  }
  for (let before = -1; before !== nullable.size; ) {
    before = nullable.size
    for (const [name, body] of rules) if (isEmpty(body)) nullable.add(name)
  }
  const firsts = (node: Node): string[] => {
    switch (node.kind) {
      case 'rule':
        return [node.name]
      case 'choice':
        return node.options.flatMap(firsts)
      case 'repeat':
        return firsts(node.item)
      case 'sequence': {
        const end = node.items.findIndex(item => !isEmpty(item))
        return node.items.slice(0, end < 0 ? undefined : end + 1).flatMap(firsts)
      }
      default:
        return []
    }
  }
  const state = new Map<string, 'open' | 'done'>()
  const cyclic = (name: string): boolean => {
    const seen = state.get(name)
    if (seen !== undefined) return seen === 'open'
    state.set(name, 'open')
    const found = firsts(rules.get(name) ?? empty).some(cyclic)
    state.set(name, 'done')
    return found
  }
  return [...rules.keys()].some(cyclic)
}

export function grammarText(rules: Rules): string {
  const productive = productiveRules(rules)
  const lines: string[] = []
  for (const [name, body] of rules) {
    if (productive.has(name)) lines.push(`${name} ::= ${nodeText(body, productive)}`)
  }
  return lines.join('\n')
}

/** Options that can never end are left out: they would only lead the sampler into a dead end. */
function nodeText(node: Node, productive: ReadonlySet<string>): string {
  switch (node.kind) {
    case 'literal':
      return quote(node.text)
    case 'class':
      return classText(node.ranges)
    case 'sequence':
      return node.items.map(item => nodeText(item, productive)).join(' ')
    case 'choice': {
      const options = node.options.filter(option => endsWithin(option, productive))
      return `(${options.map(option => nodeText(option, productive)).join(' | ')})`
    }
    case 'repeat': {
      if (!endsWithin(node.item, productive)) return quote('')
      const item = `(${nodeText(node.item, productive)})`
      if (node.max === Number.POSITIVE_INFINITY)
        return node.min === 0 ? `${item}*` : node.min === 1 ? `${item}+` : `${item}{${node.min},}`
      return node.min === 0 && node.max === 1 ? `${item}?` : `${item}{${node.min},${node.max}}`
    }
    case 'rule':
      return node.name
  }
}

function endsWithin(node: Node, productive: ReadonlySet<string>): boolean {
  switch (node.kind) {
    case 'sequence':
      return node.items.every(item => endsWithin(item, productive))
    case 'choice':
      return node.options.some(option => endsWithin(option, productive))
    case 'repeat':
      return node.min === 0 || endsWithin(node.item, productive)
    case 'rule':
      return productive.has(node.name)
    case 'class':
      return node.ranges.length > 0
    case 'literal':
      return true
  }
}

function quote(text: string): string {
  let out = '"'
  for (const char of text) {
    const code = char.codePointAt(0)!
    if (char === '"' || char === '\\') out += `\\${char}`
    else if (code < 0x20 || code > 0x7e) out += escapeCode(code)
    else out += char
  }
  return out + '"'
}

/** ASCII ranges as they are; with all of Unicode behind them, what is missing of ASCII negated. */
function classText(ranges: readonly CharRange[]): string {
  const ascii = (code: number) => ranges.some(([first, last]) => code >= first && code <= last)
  const beyond = ranges.some(([first, last]) => first <= BEYOND_ASCII[0] && last >= BEYOND_ASCII[1])
  let out = ''
  for (let code = 0; code < 0x80; code++) {
    if (ascii(code) === beyond) continue
    let last = code
    while (last + 1 < 0x80 && ascii(last + 1) !== beyond) last++
    out += code === last ? classChar(code) : `${classChar(code)}-${classChar(last)}`
    code = last
  }
  return beyond ? `[^${out === '' ? '\\u0000' : out}]` : `[${out}]`
}

function classChar(code: number): string {
  const char = String.fromCodePoint(code)
  return /^[A-Za-z0-9 _]$/.test(char) ? char : escapeCode(code)
}

/** Always of fixed width: xgrammar reads `\x` with as many hex digits as follow. */
function escapeCode(code: number): string {
  const hex = code.toString(16)
  return code <= 0xffff ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`
}
