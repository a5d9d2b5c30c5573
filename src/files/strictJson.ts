// JSON for files that strangers wrote. Unlike JSON.parse it refuses duplicate names, limits nesting, and returns objects
// as Maps, so that `__proto__` is a name like any other. Nothing here knows what the values mean.
import { FormatError } from '../base/errors.js'

export type JsonValue = null | boolean | number | string | JsonValue[] | JsonObject
export type JsonObject = Map<string, JsonValue>

const MAX_DEPTH = 64
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y

/** Decodes UTF-8, refusing what is not. */
export function decodeUtf8(bytes: Uint8Array, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (cause) {
    throw new FormatError('BAD_UTF8', file, 'the text is not UTF-8', { cause })
  }
}

/** Refuses brackets that are nested deeper than what goes through values recursively can follow. */
export function checkNesting(text: string, file: string): void {
  let depth = 0
  let inString = false
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (inString) {
      if (code === 0x5c) i++
      else if (code === 0x22) inString = false
    } else if (code === 0x22) inString = true
    else if (code === 0x7d || code === 0x5d) depth--
    else if ((code === 0x7b || code === 0x5b) && ++depth > MAX_DEPTH) {
      throw new FormatError('JSON_TOO_DEEP', file, `more than ${MAX_DEPTH} nested brackets at character ${i}`)
    }
  }
}

export function parseStrictJson(text: string, file: string): JsonValue {
  let at = 0

  function fail(code: string, detail: string): never {
    throw new FormatError(code, file, `${detail} at character ${at}`)
  }

  function skipSpace(): void {
    for (;;) {
      const code = text.charCodeAt(at)
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return
      at++
    }
  }

  function parseValue(depth: number): JsonValue {
    skipSpace()
    const char = text[at]
    if (char === '{') return parseObject(depth + 1)
    if (char === '[') return parseArray(depth + 1)
    if (char === '"') return parseString()
    NUMBER.lastIndex = at
    if (NUMBER.test(text)) {
      const start = at
      at = NUMBER.lastIndex
      return Number(text.slice(start, at))
    }
    for (const [word, value] of WORDS) {
      if (text.startsWith(word, at)) {
        at += word.length
        return value
      }
    }
    return fail('BAD_JSON', char === undefined ? 'the JSON ends early' : 'not JSON')
  }

  function parseObject(depth: number): JsonObject {
    if (depth > MAX_DEPTH) fail('JSON_TOO_DEEP', `more than ${MAX_DEPTH} nested brackets`)
    const object: JsonObject = new Map()
    at++
    skipSpace()
    if (text[at] === '}') {
      at++
      return object
    }
    for (;;) {
      skipSpace()
      if (text[at] !== '"') fail('BAD_JSON', 'a name in quotes is missing')
      const name = parseString()
      if (object.has(name)) fail('DUPLICATE_NAME', `the name ${JSON.stringify(name)} is there twice`)
      skipSpace()
      if (text[at] !== ':') fail('BAD_JSON', 'a colon is missing')
      at++
      object.set(name, parseValue(depth))
      skipSpace()
      const next = text[at++]
      if (next === '}') return object
      if (next !== ',') {
        at--
        fail('BAD_JSON', 'a comma or a closing brace is missing')
      }
    }
  }

  function parseArray(depth: number): JsonValue[] {
    if (depth > MAX_DEPTH) fail('JSON_TOO_DEEP', `more than ${MAX_DEPTH} nested brackets`)
    const array: JsonValue[] = []
    at++
    skipSpace()
    if (text[at] === ']') {
      at++
      return array
    }
    for (;;) {
      array.push(parseValue(depth))
      skipSpace()
      const next = text[at++]
      if (next === ']') return array
      if (next !== ',') {
        at--
        fail('BAD_JSON', 'a comma or a closing bracket is missing')
      }
    }
  }

  function parseString(): string {
    const start = at
    let end = at + 1
    let isPlain = true
    for (;;) {
      const code = text.charCodeAt(end)
      if (code === 0x22) break
      if (Number.isNaN(code)) fail('BAD_JSON', 'a string does not end')
      if (code === 0x5c || code < 0x20) isPlain = false
      end += code === 0x5c ? 2 : 1
    }
    at = end + 1
    if (isPlain) return text.slice(start + 1, end)
    try {
      return JSON.parse(text.slice(start, at))
    } catch {
      at = start
      return fail('BAD_JSON', 'a string is not valid')
    }
  }

  const value = parseValue(0)
  skipSpace()
  if (at !== text.length) fail('BAD_JSON', 'there is more after the end')
  return value
}

const WORDS: readonly [string, JsonValue][] = [
  ['true', true],
  ['false', false],
  ['null', null],
]

export function asObject(value: JsonValue | undefined, file: string, what: string): JsonObject {
  if (!(value instanceof Map)) throw new FormatError('BAD_FIELD', file, `${what} is not an object`)
  return value
}

export function asString(value: JsonValue | undefined, file: string, what: string): string {
  if (typeof value !== 'string') throw new FormatError('BAD_FIELD', file, `${what} is not a string`)
  return value
}

/** A whole number from 0 to 2^53 - 1. */
export function asCount(value: JsonValue | undefined, file: string, what: string): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) {
    throw new FormatError('BAD_NUMBER', file, `${what} is ${show(value)}, want a whole number of at least 0`)
  }
  return value
}

export function asArray(value: JsonValue | undefined, file: string, what: string): JsonValue[] {
  if (!Array.isArray(value)) throw new FormatError('BAD_FIELD', file, `${what} is not a list`)
  return value
}

/** A value for an error message, short. */
export function show(value: JsonValue | undefined): string {
  if (value === undefined) return 'missing'
  if (value instanceof Map) return 'an object'
  if (Array.isArray(value)) return 'a list'
  const text = JSON.stringify(value)
  return text.length > 60 ? `${text.slice(0, 60)}…` : text
}
