// The parts that all grammars of JSON are made of. JSON is written compactly, with at most one space after a colon or a
// comma; what a string holds is raw wherever JSON allows it.
import { type CharRange, MAX_CODE, subtract } from '../automaton/byteAutomaton.js'
import type { GrammarBuilder, Node } from '../source/grammarBuilder.js'
import { anyNumber } from './numberGrammar.js'

const CONTROL: CharRange = [0, 0x1f]
const QUOTE: CharRange = [0x22, 0x22]
const BACKSLASH: CharRange = [0x5c, 0x5c]
const LESS_THAN: CharRange = [0x3c, 0x3c]

/** How one character out of a set is written. */
export type CharEncoder = (builder: GrammarBuilder, ranges: readonly CharRange[]) => Node

/** As it stands in a JSON string: raw, or escaped where JSON demands it. */
export const jsonChar: CharEncoder = (builder, ranges) => {
  const raw = builder.charClass(subtract(ranges, [CONTROL, QUOTE, BACKSLASH]))
  const escaped: Node[] = []
  for (const [first, last] of subtract(ranges, [[BACKSLASH[1] + 1, MAX_CODE]])) {
    for (let code = first; code <= last; code++) {
      const [written] = JSON.stringify(String.fromCharCode(code)).match(/\\.+(?=")/) ?? []
      if (written !== undefined) escaped.push(builder.literal(written))
    }
  }
  return builder.choice([raw, ...escaped])
}

/** As it is, for text between tags: without `<`. */
export const plainChar: CharEncoder = (builder, ranges) => builder.charClass(subtract(ranges, [LESS_THAN]))

export class JsonText {
  readonly comma: Node
  readonly colon: Node
  readonly anyChar: Node
  private value: Node | null = null

  constructor(readonly builder: GrammarBuilder) {
    const space = builder.optional(builder.literal(' '))
    this.comma = builder.sequence([builder.literal(','), space])
    this.colon = builder.sequence([builder.literal(':'), space])
    this.anyChar = jsonChar(builder, [[0, MAX_CODE]])
  }

  quoted(content: Node): Node {
    const quote = this.builder.literal('"')
    return this.builder.sequence([quote, content, quote])
  }

  /** One or more of `item`, up to `most` of them. */
  list(item: Node, least: number, most: number): Node {
    const { builder } = this
    const more = builder.repeat(builder.sequence([this.comma, item]), Math.max(0, least - 1), most - 1)
    return builder.sequence([item, more])
  }

  anyObject(): Node {
    const { builder } = this
    const member = builder.sequence([this.quoted(builder.repeat(this.anyChar, 0)), this.colon, this.anyValue()])
    return this.bracketed('{', builder.optional(this.list(member, 1, Number.POSITIVE_INFINITY)), '}')
  }

  /** Any JSON at all, for schemas that say nothing. Nested as deep as the model likes. */
  anyValue(): Node {
    if (this.value !== null) return this.value
    const { builder } = this
    const value = (this.value = builder.promise())
    const items = builder.optional(this.list(value, 1, Number.POSITIVE_INFINITY))
    const scalars = ['true', 'false', 'null'].map(text => builder.literal(text))
    const text = this.quoted(builder.repeat(this.anyChar, 0))
    const options = [this.anyObject(), this.bracketed('[', items, ']'), text, anyNumber(builder), ...scalars]
    builder.keep(value, builder.choice(options))
    return value
  }

  bracketed(open: string, content: Node, close: string): Node {
    return this.builder.sequence([this.builder.literal(open), content, this.builder.literal(close)])
  }

  /** One of many texts. Those that begin alike share their beginning, so that thousands of them are no burden. */
  oneOf(texts: Iterable<string>): Node {
    return prefixTree(this.builder, [...new Set(texts)].sort())
  }
}

/** From the right: each prefix that several texts share becomes one choice among their endings. Texts are sorted. */
function prefixTree(builder: GrammarBuilder, texts: readonly string[]): Node {
  interface Open {
    readonly prefix: string
    readonly options: Node[]
  }
  const open: Open[] = [{ prefix: '', options: [] }]
  const close = (length: number) => {
    while (open.length > 1 && open[open.length - 1].prefix.length > length) {
      const { prefix, options } = open.pop()!
      const parent = open[open.length - 1]
      // A shorter prefix in between is one that the next text shares.
      if (parent.prefix.length < length) open.push({ prefix: prefix.slice(0, length), options: [] })
      const base = open[open.length - 1]
      base.options.push(builder.sequence([builder.literal(prefix.slice(base.prefix.length)), builder.choice(options)]))
    }
  }
  texts.forEach((text, i) => {
    close(commonLength(text, texts[i - 1] ?? ''))
    const ahead = commonLength(text, texts[i + 1] ?? '')
    if (ahead > open[open.length - 1].prefix.length) open.push({ prefix: text.slice(0, ahead), options: [] })
    const base = open[open.length - 1]
    base.options.push(builder.literal(text.slice(base.prefix.length)))
  })
  close(0)
  return builder.choice(open[0].options)
}

/** Characters at the beginning that are the same, without cutting one in two. */
function commonLength(a: string, b: string): number {
  let length = 0
  while (length < a.length && a[length] === b[length]) length++
  const last = a.charCodeAt(length - 1)
  return last >= 0xd800 && last <= 0xdbff ? length - 1 : length
}
