// Turns a schema's `pattern` into a grammar for the text that holds a matching value. Nothing here backtracks,
// so there is no catastrophic pattern; what has no grammar (look-around, back references, word boundaries) is refused.
import { UnsupportedSchemaError } from '../../base/errors.js'
import { type CharRange, MAX_CODE, subtract } from '../automaton/byteAutomaton.js'
import { MAX_REPEAT } from '../automaton/program.js'
import type { CharEncoder } from '../schema/jsonText.js'
import type { GrammarBuilder, Node } from './grammarBuilder.js'

const MAX_DEPTH = 200 // of groups
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
const LINE_ENDS: CharRange[] = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
]

const invert = (ranges: readonly CharRange[]): CharRange[] => subtract([[0, MAX_CODE]], ranges)

/** Texts that match `pattern` as JSON Schema means it: anywhere, unless anchored. `encode` says how characters are written. */
export function regexGrammar(builder: GrammarBuilder, pattern: string, path: string, encode: CharEncoder): Node {
  return new RegexParser(builder, pattern, path, encode).parse()
}

class RegexParser {
  private at = 0
  private depth = 0
  private readonly chars: string[]

  constructor(
    private readonly builder: GrammarBuilder,
    private readonly pattern: string,
    private readonly path: string,
    private readonly encode: CharEncoder,
  ) {
    try {
      new RegExp(pattern, 'u')
    } catch {
      throw this.refuse('is not a regular expression')
    }
    this.chars = Array.from(pattern)
  }

  parse(): Node {
    const { builder } = this
    const anything = builder.repeat(this.char([[0, MAX_CODE]]), 0)
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
      options.push(builder.sequence(body))
    } while (this.take('|'))
    return builder.choice(options)
  }

  private char(ranges: readonly CharRange[]): Node {
    return this.encode(this.builder, ranges)
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
    if (++this.depth > MAX_DEPTH) throw this.refuse(`has groups nested deeper than ${MAX_DEPTH}`)
    do options.push(this.builder.sequence(this.sequenceItems(false)))
    while (this.take('|'))
    this.depth--
    return this.builder.choice(options)
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
    return this.builder.repeat(item, min, max)
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
