// Turns a schema's `pattern` into a grammar for the JSON string that holds a matching value. Nothing here backtracks,
// so there is no catastrophic pattern; what has no grammar (look-around, back references, word boundaries) is refused.
import { UnsupportedSchemaError } from '../errors.js'
import {
  BEYOND_ASCII,
  type CharRange,
  charClass,
  choice,
  empty,
  literal,
  type Node,
  repeat,
  sequence,
} from './grammarTree.js'

const MAX_CODE = 0x10ffff
const DIGITS: CharRange[] = [[0x30, 0x39]]
const WORD: CharRange[] = [
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
]
const SPACE: CharRange[] = [
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
]
const SURROGATES: CharRange = [0xd800, 0xdfff]
// What `.` and `\S` leave out past ASCII. A class has all of Unicode past ASCII or none: these few stay in.
const EXOTIC_SPACE: CharRange[] = SPACE.filter(([first]) => first >= 0x80)
const MAX_LITERALS = 1024
const LINE_ENDS: CharRange[] = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
]
const SHORT_ESCAPES = new Map([
  [0x22, '\\"'],
  [0x5c, '\\\\'],
  [0x08, '\\b'],
  [0x09, '\\t'],
  [0x0a, '\\n'],
  [0x0c, '\\f'],
  [0x0d, '\\r'],
])

/** How one character out of a set is written. */
export type CharEncoder = (ranges: readonly CharRange[]) => Node

/** One character out of `ranges`, as it stands in a JSON string: raw, or escaped where JSON demands it. */
export function jsonChar(ranges: readonly CharRange[]): Node {
  const raw = subtract(ranges, [[0, 0x1f], [0x22, 0x22], [0x5c, 0x5c], BEYOND_ASCII])
  const options: Node[] = []
  for (const [first, last] of subtract(ranges, [[0x5d, MAX_CODE]])) {
    for (let code = first; code <= last; code++) {
      const short = SHORT_ESCAPES.get(code)
      if (short !== undefined) options.push(literal(short))
      else if (code < 0x20) options.push(literal(unicodeEscape(code)))
    }
  }
  const missing = subtract(subtract([BEYOND_ASCII], [SURROGATES]), ranges)
  if (subtract(missing, EXOTIC_SPACE).length === 0) raw.push(BEYOND_ASCII)
  else {
    for (const [first, last] of subtract(ranges, [[0, 0x7f], SURROGATES])) {
      if (last - first < MAX_LITERALS) {
        for (let code = first; code <= last; code++) options.push(literal(String.fromCodePoint(code)))
      } else options.push(escapedRange(first, last))
    }
  }
  if (raw.length > 0) options.unshift(charClass(...raw))
  return choice(...options)
}

/** One character out of `ranges` as it is, for text between tags: without `<`. Past ASCII a class has all or none. */
export function plainChar(ranges: readonly CharRange[]): Node {
  const raw = subtract(ranges, [[0x3c, 0x3c], BEYOND_ASCII])
  const missing = subtract(subtract([BEYOND_ASCII], [SURROGATES]), ranges)
  const literals: Node[] = []
  if (subtract(missing, EXOTIC_SPACE).length === 0) raw.push(BEYOND_ASCII)
  else {
    for (const [first, last] of subtract(ranges, [[0, 0x7f], SURROGATES])) {
      for (let code = first; code <= Math.min(last, first + MAX_LITERALS); code++)
        literals.push(literal(String.fromCodePoint(code)))
    }
  }
  return raw.length > 0 ? choice(charClass(...raw), ...literals) : choice(...literals)
}

/** A long range past ASCII as \uXXXX escapes, whose hex digits a grammar can bound exactly. Planes past the first are left out. */
function escapedRange(first: number, last: number): Node {
  const high = Math.min(last, 0xffff)
  return first > high ? choice() : sequence(literal('\\u'), hexRange(hex4(first), hex4(high)))
}

function hexRange(low: string, high: string): Node {
  if (low === '') return empty
  const first = Number.parseInt(low[0], 16)
  const last = Number.parseInt(high[0], 16)
  const rest = low.length - 1
  if (first === last) return sequence(hexDigits(first, last), hexRange(low.slice(1), high.slice(1)))
  const options = [sequence(hexDigits(first, first), hexRange(low.slice(1), 'f'.repeat(rest)))]
  if (last - first > 1)
    options.push(sequence(hexDigits(first + 1, last - 1), hexRange('0'.repeat(rest), 'f'.repeat(rest))))
  options.push(sequence(hexDigits(last, last), hexRange('0'.repeat(rest), high.slice(1))))
  return choice(...options)
}

function hexDigits(first: number, last: number): Node {
  const ranges: CharRange[] = []
  for (let digit = first; digit <= last; digit++) {
    const code = digit.toString(16).charCodeAt(0)
    ranges.push([code, code])
  }
  return charClass(...ranges)
}

const hex4 = (code: number): string => code.toString(16).padStart(4, '0')
const unicodeEscape = (code: number): string => `\\u${hex4(code)}`

export const anyJsonChar: Node = jsonChar([[0, MAX_CODE]])

function subtract(ranges: readonly CharRange[], holes: readonly CharRange[]): CharRange[] {
  let out: CharRange[] = [...ranges]
  for (const [from, to] of holes) {
    out = out.flatMap(([first, last]): CharRange[] => {
      if (to < first || from > last) return [[first, last]]
      const parts: CharRange[] = []
      if (first < from) parts.push([first, from - 1])
      if (last > to) parts.push([to + 1, last])
      return parts
    })
  }
  return out
}

const invert = (ranges: readonly CharRange[]): CharRange[] => subtract([[0, MAX_CODE]], ranges)

/** The content (between the quotes) of JSON strings that match `pattern` as JSON Schema means it: anywhere, unless anchored. */
export function regexGrammar(pattern: string, path: string, char: CharEncoder = jsonChar): Node {
  return new RegexParser(pattern, path, char).parse()
}

class RegexParser {
  private at = 0
  private readonly chars: string[]

  constructor(
    private readonly pattern: string,
    private readonly path: string,
    private readonly char: CharEncoder,
  ) {
    try {
      new RegExp(pattern, 'u')
    } catch {
      throw this.refuse('is not a regular expression')
    }
    this.chars = Array.from(pattern)
  }

  parse(): Node {
    const anything = repeat(this.char([[0, MAX_CODE]]), 0, Number.POSITIVE_INFINITY)
    const options: Node[] = []
    // Anchors are allowed at both ends of each top-level alternative; `^(a|b)$` is the usual case of one.
    do {
      const anchoredStart = this.take('^')
      const items = this.sequenceItems(true)
      const anchoredEnd = this.take('$')
      if (this.at < this.chars.length && this.chars[this.at] !== '|') throw this.refuse('uses $ inside')
      const body = [...items]
      if (!anchoredStart) body.unshift(anything)
      if (!anchoredEnd) body.push(anything)
      options.push(body.length === 0 ? empty : sequence(...body))
    } while (this.take('|'))
    return choice(...options)
  }

  private refuse(what: string): UnsupportedSchemaError {
    return new UnsupportedSchemaError('pattern', this.path, `'${this.pattern.slice(0, 80)}' ${what}`)
  }

  private take(char: string): boolean {
    if (this.chars[this.at] !== char) return false
    this.at++
    return true
  }

  private alternatives(): Node {
    const options: Node[] = []
    do {
      const items = this.sequenceItems(false)
      options.push(items.length === 0 ? empty : sequence(...items))
    } while (this.take('|'))
    return choice(...options)
  }

  private sequenceItems(top: boolean): Node[] {
    const items: Node[] = []
    while (this.at < this.chars.length) {
      const char = this.chars[this.at]
      if (char === '|' || char === ')') break
      if (char === '$') {
        if (top) break
        throw this.refuse('uses $ inside')
      }
      if (char === '^') throw this.refuse('uses ^ inside')
      items.push(this.quantified())
    }
    return items
  }

  private quantified(): Node {
    const item = this.atom()
    const char = this.chars[this.at]
    let min: number
    let max: number
    if (char === '*') [min, max] = [0, Number.POSITIVE_INFINITY]
    else if (char === '+') [min, max] = [1, Number.POSITIVE_INFINITY]
    else if (char === '?') [min, max] = [0, 1]
    else if (char === '{') {
      const end = this.chars.indexOf('}', this.at)
      const [low, high] = this.chars
        .slice(this.at + 1, end)
        .join('')
        .split(',')
      min = Number(low)
      max = high === undefined ? min : high === '' ? Number.POSITIVE_INFINITY : Number(high)
      this.at = end
    } else return item
    this.at++
    this.take('?') // lazy: the same strings match
    if (min > MAX_REPEAT || (Number.isFinite(max) && max > MAX_REPEAT))
      throw this.refuse(`repeats more than ${MAX_REPEAT} times`)
    return repeat(item, min, max)
  }

  private atom(): Node {
    const char = this.chars[this.at++]
    if (char === '(') {
      if (this.take('?')) {
        if (this.take(':')) {
          // a group without a capture
        } else if (this.chars[this.at] === '<' && !['=', '!'].includes(this.chars[this.at + 1])) {
          this.at = this.chars.indexOf('>', this.at) + 1
        } else throw this.refuse('uses look-around')
      }
      const inner = this.alternatives()
      this.at++
      return inner
    }
    if (char === '.') return this.char(invert(LINE_ENDS))
    if (char === '[') return this.char(this.classRanges())
    if (char === '\\') return this.char(this.escapeRanges())
    return this.char([[char.codePointAt(0)!, char.codePointAt(0)!]])
  }

  private classRanges(): CharRange[] {
    const negated = this.take('^')
    const ranges: CharRange[] = []
    while (!this.take(']')) {
      const low = this.classItem()
      if (
        this.chars[this.at] === '-' &&
        this.chars[this.at + 1] !== ']' &&
        low.length === 1 &&
        low[0][0] === low[0][1]
      ) {
        this.at++
        const high = this.classItem()
        ranges.push([low[0][0], high[0][1]])
      } else ranges.push(...low)
    }
    return negated ? invert(ranges) : ranges
  }

  private classItem(): CharRange[] {
    const char = this.chars[this.at++]
    if (char === '\\') {
      if (this.take('b')) return [[0x08, 0x08]]
      return this.escapeRanges()
    }
    const code = char.codePointAt(0)!
    return [[code, code]]
  }

  private escapeRanges(): CharRange[] {
    const char = this.chars[this.at++]
    const one = (code: number): CharRange[] => [[code, code]]
    switch (char) {
      case 'd':
        return DIGITS
      case 'D':
        return invert(DIGITS)
      case 'w':
        return WORD
      case 'W':
        return invert(WORD)
      case 's':
        return SPACE
      case 'S':
        return invert(SPACE)
      case 'n':
        return one(0x0a)
      case 'r':
        return one(0x0d)
      case 't':
        return one(0x09)
      case 'f':
        return one(0x0c)
      case 'v':
        return one(0x0b)
      case '0':
        return one(0)
      case 'x':
        return one(this.hex(2))
      case 'c':
        return one(this.chars[this.at++].charCodeAt(0) % 32)
      case 'u': {
        if (this.take('{')) {
          const end = this.chars.indexOf('}', this.at)
          const code = Number.parseInt(this.chars.slice(this.at, end).join(''), 16)
          this.at = end + 1
          return one(code)
        }
        const high = this.hex(4)
        if (high >= 0xd800 && high < 0xdc00 && this.chars[this.at] === '\\' && this.chars[this.at + 1] === 'u') {
          this.at += 2
          const low = this.hex(4)
          return one(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
        }
        return one(high)
      }
      case 'b':
      case 'B':
        throw this.refuse('uses a word boundary')
      case 'p':
      case 'P':
        throw this.refuse('uses a Unicode property')
      case 'k':
        throw this.refuse('uses a back reference')
      default:
        if (/[1-9]/.test(char)) throw this.refuse('uses a back reference')
        return one(char.codePointAt(0)!)
    }
  }

  private hex(length: number): number {
    const text = this.chars.slice(this.at, this.at + length).join('')
    this.at += length
    return Number.parseInt(text, 16)
  }
}

const MAX_REPEAT = 4096
