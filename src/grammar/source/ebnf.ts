// Reads a grammar that people wrote: rules `name ::= …` of "texts", [classes], (groups), alternatives and repetitions, the
// one called `root` first of all. What it does not understand is refused with the line and the column.
import { GrammarError } from '../../base/errors.js'
import { type CharRange, MAX_CODE, subtract } from '../automaton/byteAutomaton.js'
import { MAX_REPEAT, type Program, UNBOUNDED } from '../automaton/program.js'
import { GrammarBuilder, type GrammarLimits, type Node } from './grammarBuilder.js'
import { type Expression, withoutLeftRecursion } from './leftRecursion.js'

const MAX_DEPTH = 200
const NAME = /[A-Za-z_][A-Za-z0-9_.-]*/y
const SPACE = /(?:[ \t\r\n]+|#[^\n]*)*/y
const COUNTS = /\{\s*(\d+)\s*(,?)\s*(\d*)\s*\}/y
const ESCAPES = new Map(Object.entries({ n: '\n', r: '\r', t: '\t', f: '\f', v: '\v', b: '\b', a: '\x07', e: '\x1b' }))
const HEX_DIGITS = new Map(Object.entries({ x: 2, u: 4, U: 8 }))

export function ebnfProgram(text: string, limits?: GrammarLimits): Program {
  const builder = new GrammarBuilder(limits)
  return builder.finish(ebnfGrammar(builder, text))
}

/** As part of a larger grammar. */
export function ebnfGrammar(builder: GrammarBuilder, text: string): Node {
  const rules = withoutLeftRecursion(new EbnfParser(text).parse())
  const nodes = new Map([...rules.keys()].map(name => [name, builder.promise()]))
  for (const [name, body] of rules) builder.keep(nodes.get(name)!, build(builder, body, nodes))
  return nodes.get('root')!
}

function build(builder: GrammarBuilder, expression: Expression, rules: ReadonlyMap<string, Node>): Node {
  const inner = (item: Expression) => build(builder, item, rules)
  switch (expression.kind) {
    case 'text':
      return builder.literal(expression.text)
    case 'class':
      return builder.charClass(expression.ranges)
    case 'rule':
      return rules.get(expression.name)!
    case 'sequence':
      return builder.sequence(expression.items.map(inner))
    case 'choice':
      return builder.choice(expression.options.map(inner))
    case 'repeat':
      return builder.repeat(inner(expression.item), expression.min, expression.max)
  }
}

class EbnfParser {
  private at = 0
  private depth = 0
  private readonly uses = new Map<string, number>() // where each rule is used first

  constructor(private readonly text: string) {}

  parse(): Map<string, Expression> {
    const rules = new Map<string, Expression>()
    for (this.skipSpace(); this.at < this.text.length; this.skipSpace()) {
      const begin = this.at
      const name = this.ruleHead()
      if (name === null) throw this.refuse('want a rule: name ::= …')
      if (rules.has(name)) throw this.refuse(`the rule ${name} is there twice`, begin)
      rules.set(name, this.choice())
      if (this.peek() === ')') throw this.refuse('a ) without its (')
    }
    if (!rules.has('root')) throw new GrammarError('the grammar has no rule named root')
    for (const [name, place] of this.uses) {
      if (!rules.has(name)) throw this.refuse(`there is no rule ${name}`, place)
    }
    return rules
  }

  private refuse(what: string, at = this.at): GrammarError {
    const before = this.text.slice(0, at).split('\n')
    return new GrammarError(`EBNF at line ${before.length}, column ${before[before.length - 1].length + 1}: ${what}`)
  }

  private match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.at
    const found = pattern.exec(this.text)
    if (found !== null) this.at = pattern.lastIndex
    return found
  }

  private skipSpace(): void {
    this.match(SPACE)
  }

  private peek(): string {
    return this.text[this.at] ?? ''
  }

  /** The name of a rule that begins here; null, and nothing read, where none does. */
  private ruleHead(): string | null {
    const begin = this.at
    const name = this.match(NAME)?.[0]
    this.skipSpace()
    if (name !== undefined && this.text.startsWith('::=', this.at)) {
      this.at += 3
      return name
    }
    this.at = begin
    return null
  }

  private choice(): Expression {
    if (++this.depth > MAX_DEPTH) throw this.refuse(`groups are nested deeper than ${MAX_DEPTH}`)
    const options = [this.sequence()]
    while (this.peek() === '|') {
      this.at++
      options.push(this.sequence())
    }
    this.depth--
    return options.length === 1 ? options[0] : { kind: 'choice', options }
  }

  private sequence(): Expression {
    const items: Expression[] = []
    for (;;) {
      this.skipSpace()
      const char = this.peek()
      if (char === '' || char === '|' || char === ')') break
      const begin = this.at
      if (this.ruleHead() !== null) {
        this.at = begin // the next rule
        break
      }
      items.push(this.repeated())
    }
    if (items.length === 0) throw this.refuse('want a "text", [class], (group) or rule; "" stands for nothing')
    return items.length === 1 ? items[0] : { kind: 'sequence', items }
  }

  private repeated(): Expression {
    const item = this.element()
    const char = this.peek()
    if (char === '*' || char === '+' || char === '?') {
      this.at++
      if ('*+?{'.includes(this.peek() || ' '))
        throw this.refuse('one repetition after another: put the first into a group')
      return { kind: 'repeat', item, min: char === '+' ? 1 : 0, max: char === '?' ? 1 : UNBOUNDED }
    }
    if (char !== '{') return item
    const begin = this.at
    const counts = this.match(COUNTS)
    if (counts === null) throw this.refuse('want {count}, {least,} or {least,most}')
    const [, least, comma, most] = counts
    const min = Number(least)
    const max = comma === '' ? min : most === '' ? UNBOUNDED : Number(most)
    if (max < min) throw this.refuse(`${max} is less than ${min}`, begin)
    if (min > MAX_REPEAT || (max > MAX_REPEAT && max !== UNBOUNDED)) {
      throw this.refuse(`more than ${MAX_REPEAT} repetitions`, begin)
    }
    return { kind: 'repeat', item, min, max }
  }

  private element(): Expression {
    const char = this.peek()
    if (char === '"') return this.literal()
    if (char === '[') return this.charClass()
    if (char === '(') {
      const begin = this.at++
      this.skipSpace()
      if (this.peek() === '=') throw this.refuse('look-ahead is not supported', begin)
      const inner = this.choice()
      if (this.peek() !== ')') throw this.refuse('a ( without its )', begin)
      this.at++
      return inner
    }
    const begin = this.at
    const name = this.match(NAME)?.[0]
    if (name === undefined) throw this.refuse(`unexpected ${JSON.stringify(char)}`)
    if (this.peek() === '(') throw this.refuse(`${name}(…) is not supported`, begin)
    if (!this.uses.has(name)) this.uses.set(name, begin)
    return { kind: 'rule', name }
  }

  private literal(): Expression {
    const begin = this.at++
    let text = ''
    while (this.peek() !== '"') {
      if (this.peek() === '' || this.peek() === '\n') throw this.refuse('a text without its closing "', begin)
      text += this.character('"\'\\')
    }
    this.at++
    return { kind: 'text', text }
  }

  private charClass(): Expression {
    const begin = this.at++
    const negated = this.peek() === '^'
    if (negated) this.at++
    const ranges: CharRange[] = []
    while (this.peek() !== ']') {
      if (this.peek() === '' || this.peek() === '\n') throw this.refuse('a class without its closing ]', begin)
      const place = this.at
      const first = this.character(']\\-[^"\'').codePointAt(0)!
      let last = first
      if (this.peek() === '-' && this.text[this.at + 1] !== ']' && this.at + 1 < this.text.length) {
        this.at++
        last = this.character(']\\-[^"\'').codePointAt(0)!
      }
      if (last < first) throw this.refuse('a range that ends before it begins', place)
      ranges.push([first, last])
    }
    this.at++
    return { kind: 'class', ranges: negated ? subtract([[0, MAX_CODE]], ranges) : ranges }
  }

  /** One character, as it is or escaped; those of `plain` may be escaped to stand for themselves. */
  private character(plain: string): string {
    const begin = this.at
    if (this.peek() !== '\\') {
      const char = String.fromCodePoint(this.text.codePointAt(this.at)!)
      this.at += char.length
      return char
    }
    const code = this.text[this.at + 1] ?? ''
    this.at += 2
    if (code !== '' && plain.includes(code)) return code
    const short = ESCAPES.get(code)
    if (short !== undefined) return short
    const digits = HEX_DIGITS.get(code)
    const hex = digits === undefined ? '' : this.text.slice(this.at, this.at + digits)
    if (digits === undefined || hex.length < digits || !/^[0-9a-f]+$/i.test(hex)) {
      throw this.refuse(`${JSON.stringify(`\\${code}${hex}`)} is not an escape`, begin)
    }
    this.at += digits
    const value = Number.parseInt(hex, 16)
    if (value > MAX_CODE) throw this.refuse(`there is no character ${hex}`, begin)
    return String.fromCodePoint(value)
  }
}
