// A JSON response: at once if it is small, otherwise in pieces between which the event loop runs
// other work. An answer with the likelihoods of thousands of tokens has megabytes, and writing them
// at once would delay all other requests.
import type { Context } from 'hono'
import { yieldToEventLoop } from '../../base/yieldToEventLoop.js'

const PIECE = 2 ** 16 // characters, about
const LONG_LIST = 32 // items

export function jsonAnswer(c: Context, value: unknown): Response {
  const pieces = jsonPieces(value)
  const { value: first = 'null' } = pieces.next()
  let next = pieces.next()
  c.header('content-type', 'application/json')
  if (next.done) return c.body(first)
  const utf8 = new TextEncoder()
  const body = new ReadableStream<Uint8Array>({
    start: controller => controller.enqueue(utf8.encode(first)),
    async pull(controller) {
      await yieldToEventLoop()
      controller.enqueue(utf8.encode(next.value as string))
      next = pieces.next()
      if (next.done) controller.close()
    },
  })
  return c.body(body)
}

/** A list whose entries are made when they are written. */
export class LazyList<T> {
  constructor(
    private readonly items: readonly T[],
    private readonly write: (item: T) => unknown,
  ) {}

  *[Symbol.iterator](): Generator<unknown> {
    for (const item of this.items) yield this.write(item)
  }
}

/** JSON in pieces; all of them together are what JSON.stringify gives. */
export function* jsonPieces(value: unknown): Generator<string> {
  let piece = ''
  for (const part of parts(value)) {
    piece += part
    if (piece.length < PIECE) continue
    yield piece
    piece = ''
  }
  if (piece !== '') yield piece
}

function* parts(value: unknown): Generator<string> {
  if (typeof value === 'string' && value.length > PIECE) yield* longText(value)
  else if (value instanceof LazyList) yield* list(value, true)
  else if (Array.isArray(value)) yield* list(value, value.length > LONG_LIST)
  else if (value !== null && typeof value === 'object') yield* object(value)
  else yield JSON.stringify(value) ?? 'null'
}

/** The entries of a long list are small, and written whole. */
function* list(items: Iterable<unknown>, isLong: boolean): Generator<string> {
  let separator = '['
  for (const item of items) {
    yield separator
    if (isLong) yield JSON.stringify(item) ?? 'null'
    else yield* parts(item)
    separator = ','
  }
  yield separator === '[' ? '[]' : ']'
}

function* object(value: object): Generator<string> {
  let separator = '{'
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue
    yield `${separator}${JSON.stringify(key)}:`
    yield* parts(item)
    separator = ','
  }
  yield separator === '{' ? '{}' : '}'
}

function* longText(text: string): Generator<string> {
  yield '"'
  for (let start = 0, end = 0; start < text.length; start = end) {
    end = Math.min(text.length, start + PIECE)
    const code = text.charCodeAt(end - 1)
    if (code >= 0xd800 && code < 0xdc00) end = Math.min(text.length, end + 1) // a character is never cut in two
    yield JSON.stringify(text.slice(start, end)).slice(1, -1)
  }
  yield '"'
}
