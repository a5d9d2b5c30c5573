// Reads the JSON body of a request within limits: bytes, nesting, values, and what a schema says. Every refusal names what
// is wrong; nothing larger than the limit is ever held in memory, and all bodies together take no more than there is
// room for.
import type { Context } from 'hono'
import type { z } from 'zod'
import { yieldToEventLoop } from '../../base/yieldToEventLoop.js'
import { ApiError } from './apiError.js'
import type { BodyRoom } from './bodyBudget.js'
import { JsonError, type JsonLimits, JsonReader } from './jsonReader.js'

export interface BodyLimits extends JsonLimits {
  readonly maxBytes: number
}

export const DEFAULT_BODY_LIMITS: BodyLimits = { maxBytes: 32 * 2 ** 20, maxDepth: 200, maxValues: 2 ** 17 }

export interface Body<T> {
  readonly request: T
  /** Gives its room back. */
  readonly release: () => void
}

export async function readBody<T>(
  c: Context,
  schema: z.ZodType<T>,
  limits: BodyLimits,
  room: BodyRoom,
  signal: AbortSignal,
): Promise<Body<T>> {
  const type = c.req.header('content-type') ?? ''
  // Without a word on it, and as curl says it unless it is told otherwise, JSON is meant. Pages of others cannot send that
  // unasked: their origin is refused.
  if (type !== '' && !/^application\/(([\w.-]+\+)?json|x-www-form-urlencoded)\b/i.test(type)) {
    throw new ApiError('invalid_request', `content-type is '${type}', want application/json`, { status: 415 })
  }
  const announced = Number(c.req.header('content-length') ?? Number.NaN)
  if (announced > limits.maxBytes) throw tooLarge(limits)
  let reserved = Number.isNaN(announced) ? room.smallBytes : announced
  let release = await room.enter(reserved, signal)
  try {
    const reader = new JsonReader(limits)
    const utf8 = new TextDecoder('utf-8', { fatal: true })
    let size = 0
    for await (const chunk of chunksOf(c.req.raw.body, limits.maxBytes, signal)) {
      size += chunk.length
      if (size > limits.maxBytes) throw tooLarge(limits)
      if (size > reserved) {
        reserved = room.sizeFor(size) // the length was not announced
        const larger = await room.enter(reserved, signal)
        release()
        release = larger
      }
      reader.push(decoded(utf8, chunk))
      // Pieces that are there already would all be read before anything else is looked at.
      await yieldToEventLoop()
    }
    reader.push(decoded(utf8))
    return { request: validated(reader.end(), schema), release }
  } catch (error) {
    release()
    throw error instanceof JsonError ? new ApiError('invalid_request', `the body ${error.message}`) : error
  }
}

function tooLarge({ maxBytes }: BodyLimits): ApiError {
  return new ApiError('too_large', `the body is larger than ${maxBytes} bytes`)
}

/**
 * Until the end, or until the signal says that nobody needs it any more. What is left of a body that is refused early is
 * still taken from the connection: the client reads the answer when it has sent it all, and may go on to use it.
 */
async function* chunksOf(
  body: ReadableStream<Uint8Array> | null,
  maxBytes: number,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  if (body === null) return
  const reader = body.getReader()
  const abort = () => void reader.cancel().catch(() => {})
  signal.addEventListener('abort', abort, { once: true })
  let isRefused = true
  try {
    for (;;) {
      const { done, value } = await reader.read()
      isRefused = !done && !signal.aborted
      signal.throwIfAborted()
      if (done) return
      yield value
    }
  } catch (error) {
    isRefused = false
    throw error
  } finally {
    signal.removeEventListener('abort', abort)
    if (isRefused) void discard(reader, maxBytes)
  }
}

/** How long that may take is limited by the time for a request to arrive. */
async function discard(reader: ReadableStreamDefaultReader<Uint8Array>, maxBytes: number): Promise<void> {
  try {
    for (let size = 0; size <= maxBytes; ) {
      const { done, value } = await reader.read()
      if (done) return
      size += value.length
    }
    await reader.cancel() // ends the connection
  } catch {
    // the client is gone
  }
}

function decoded(utf8: TextDecoder, chunk?: Uint8Array): string {
  try {
    return chunk === undefined ? utf8.decode() : utf8.decode(chunk, { stream: true })
  } catch {
    throw new ApiError('invalid_request', 'the body is not UTF-8')
  }
}

function validated<T>(value: unknown, schema: z.ZodType<T>): T {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const issue = deepestIssue(result.error.issues[0])
  const param = issue.path.map(String).join('.')
  throw new ApiError('invalid_request', `${param === '' ? 'the body' : param}: ${issue.message}`, {
    param: param || undefined,
  })
}

interface Issue {
  readonly path: readonly PropertyKey[]
  readonly message: string
  readonly code?: string
  readonly errors?: readonly (readonly Issue[])[]
}

/** A union says only 'invalid input': the option that came furthest knows more. */
function deepestIssue(issue: Issue): Issue {
  if (issue.code !== 'invalid_union' || !issue.errors?.length) return issue
  const candidates = issue.errors.map(list => list[0]).filter(found => found !== undefined)
  if (candidates.length === 0) return issue
  const inner = candidates.map(deepestIssue).sort((a, b) => b.path.length - a.path.length)[0]
  return { ...inner, path: [...issue.path, ...inner.path] }
}
