// Reads JSON as it arrives: each piece of a body is parsed when it comes, so that no body is ever in memory twice and none
// holds up the event loop for longer than one piece takes. Depth and the number of values are limited while reading, before
// they cost anything. Gives what JSON.parse gives.

export interface JsonLimits {
  readonly maxDepth: number
  /** Objects, lists and texts; other values are small and count an eighth. */
  readonly maxValues: number
}

/** Says of what was read what it is or has. */
export class JsonError extends Error {}

type Container = { readonly list: unknown[] } | { readonly object: Record<string, unknown>; key: string }

/** What may come next. */
type Expected = 'value' | 'valueOrEnd' | 'key' | 'keyOrEnd' | 'colon' | 'commaOrEnd' | 'nothing'

const MAX_NUMBER_LENGTH = 1024
const SMALL_VALUE = 1 / 8
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/
const LITERALS: ReadonlyMap<string, unknown> = new Map<string, unknown>([
  ['true', true],
  ['false', false],
  ['null', null],
])

export class JsonReader {
  private readonly containers: Container[] = [] // outermost first
  private readonly plainWord = /[-+.\w]*/y
  private expected: Expected = 'value'
  private result: unknown
  private values = 0
  private text = ''
  private at = 0
  private before = 0 // characters of the pieces before this one
  private inString: string[] | null = null // what there is of a text whose end has not come

  constructor(private readonly limits: JsonLimits) {}

  /** Throws as soon as what has come cannot be JSON any more. */
  push(piece: string): void {
    this.before += this.at
    this.text = this.text.slice(this.at) + piece
    this.at = 0
    this.read(false)
  }

  end(): unknown {
    this.read(true)
    if (this.inString !== null) throw new JsonError('is not JSON: it ends inside a text')
    if (this.expected !== 'nothing') throw new JsonError('is not JSON: it ends too early')
    return this.result
  }

  private read(isLast: boolean): void {
    for (;;) {
      if (this.inString !== null) {
        if (!this.readString(this.inString)) return
        continue
      }
      const code = this.skipSpace()
      if (Number.isNaN(code)) return
      if (code === 0x22 /* " */) {
        this.expectValueOrKey()
        this.inString = []
        this.at++
      } else if (code === 0x7b /* { */) this.open({ object: {}, key: '' })
      else if (code === 0x5b /* [ */) this.open({ list: [] })
      else if (code === 0x7d /* } */ || code === 0x5d /* ] */) this.close(code === 0x5d)
      else if (code === 0x3a /* : */) {
        if (this.expected !== 'colon') throw this.unexpected()
        this.expected = 'value'
        this.at++
      } else if (code === 0x2c /* , */) {
        if (this.expected !== 'commaOrEnd' || this.containers.length === 0) throw this.unexpected()
        this.expected = 'list' in this.containers.at(-1)! ? 'value' : 'key'
        this.at++
      } else if (!this.readWord(isLast)) return
    }
  }

  /** The code of the next character that is not space; NaN: none has come yet. */
  private skipSpace(): number {
    const { text } = this
    let code = text.charCodeAt(this.at)
    while (code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09) code = text.charCodeAt(++this.at)
    return code
  }

  /** A number, true, false or null. False: its end has not come. */
  private readWord(isLast: boolean): boolean {
    if (this.expected !== 'value' && this.expected !== 'valueOrEnd') throw this.unexpected()
    const { text, at, plainWord } = this
    plainWord.lastIndex = at
    plainWord.test(text)
    const end = plainWord.lastIndex
    if (end - at > MAX_NUMBER_LENGTH) throw new JsonError(`has a number of more than ${MAX_NUMBER_LENGTH} characters`)
    if (end === text.length && !isLast && end > at) return false
    const word = text.slice(at, end)
    const value = LITERALS.has(word) ? LITERALS.get(word) : NUMBER.test(word) ? Number(word) : undefined
    if (value === undefined) throw this.unexpected()
    this.at = end
    this.count(SMALL_VALUE)
    this.add(value)
    return true
  }

  /** Goes on in a text. False: its end has not come. */
  private readString(parts: string[]): boolean {
    const { text, at } = this
    const quote = closingQuote(text, at)
    const end = quote >= 0 ? quote : completeEnd(text, at)
    if (end > at) parts.push(this.unescaped(text.slice(at, end)))
    this.at = end
    if (quote < 0) return false
    this.at++
    this.inString = null
    this.addString(parts.length === 1 ? parts[0] : parts.join(''))
    return true
  }

  private unescaped(raw: string): string {
    try {
      return raw.includes('\\') || /\p{Cc}/u.test(raw) ? (JSON.parse(`"${raw}"`) as string) : raw
    } catch {
      throw new JsonError(`is not JSON: a bad escape or a control character in the text at ${this.before + this.at}`)
    }
  }

  private addString(text: string): void {
    const container = this.containers.at(-1)
    if ((this.expected === 'key' || this.expected === 'keyOrEnd') && container !== undefined && 'object' in container) {
      container.key = text
      this.expected = 'colon'
      return
    }
    this.add(text)
  }

  private expectValueOrKey(): void {
    if (this.expected === 'colon' || this.expected === 'commaOrEnd' || this.expected === 'nothing') {
      throw this.unexpected()
    }
    this.count(1)
  }

  private open(container: Container): void {
    if (this.expected !== 'value' && this.expected !== 'valueOrEnd') throw this.unexpected()
    this.count(1)
    if (this.containers.length === this.limits.maxDepth) {
      throw new JsonError(`is nested deeper than ${this.limits.maxDepth}`)
    }
    this.containers.push(container)
    this.expected = 'list' in container ? 'valueOrEnd' : 'keyOrEnd'
    this.at++
  }

  private close(isList: boolean): void {
    const container = this.containers.at(-1)
    const isEmpty = this.expected === (isList ? 'valueOrEnd' : 'keyOrEnd')
    if (container === undefined || 'list' in container !== isList || !(isEmpty || this.expected === 'commaOrEnd')) {
      throw this.unexpected()
    }
    this.containers.pop()
    this.at++
    this.add('list' in container ? container.list : container.object)
  }

  private add(value: unknown): void {
    const container = this.containers.at(-1)
    this.expected = container === undefined ? 'nothing' : 'commaOrEnd'
    if (container === undefined) this.result = value
    else if ('list' in container) container.list.push(value)
    else if (container.key !== '__proto__') container.object[container.key] = value
    else {
      const own = { value, writable: true, enumerable: true, configurable: true }
      Object.defineProperty(container.object, container.key, own)
    }
  }

  private count(weight: number): void {
    this.values += weight
    if (this.values > this.limits.maxValues) throw new JsonError(`has more than ${this.limits.maxValues} values`)
  }

  private unexpected(): JsonError {
    const character = JSON.stringify(String.fromCodePoint(this.text.codePointAt(this.at)!))
    return new JsonError(`is not JSON: unexpected ${character} at ${this.before + this.at}`)
  }
}

/** Where the text ends that `at` is inside of, or -1. */
function closingQuote(text: string, at: number): number {
  for (let quote = text.indexOf('"', at); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    if (!isEscaped(text, quote, at)) return quote
  }
  return -1
}

/** As far as no escape sequence is cut in two. */
function completeEnd(text: string, at: number): number {
  const last = text.lastIndexOf('\\')
  if (last < at || isEscaped(text, last, at)) return text.length
  const length = text[last + 1] === 'u' ? 6 : 2
  return last + length > text.length ? last : text.length
}

/** Whether an odd number of backslashes is right before. */
function isEscaped(text: string, at: number, from: number): boolean {
  let start = at
  while (start > from && text.charCodeAt(start - 1) === 0x5c) start--
  return (at - start) % 2 === 1
}
