// Reads the JSON body of a request within limits: bytes, nesting, and what a schema says. Every refusal names what is
// wrong; nothing larger than the limit is ever held in memory.
import type { Context } from 'hono'
import type { z } from 'zod'
import { ApiError } from './apiError.js'

export interface BodyLimits {
  readonly maxBytes: number
  readonly maxDepth: number
}

export const DEFAULT_BODY_LIMITS: BodyLimits = { maxBytes: 32 * 2 ** 20, maxDepth: 200 }

export async function readJson<T>(c: Context, schema: z.ZodType<T>, limits: BodyLimits): Promise<T> {
  const type = c.req.header('content-type') ?? ''
  if (!/^application\/([\w.-]+\+)?json\b/i.test(type)) {
    throw new ApiError('invalid_request', `content-type is '${type}', want application/json`, { status: 415 })
  }
  const text = await readText(c, limits.maxBytes)
  checkDepth(text, limits.maxDepth)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new ApiError('invalid_request', `the body is not JSON: ${(error as Error).message}`)
  }
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const issue = deepestIssue(result.error.issues[0])
  const param = issue.path.map(String).join('.')
  throw new ApiError('invalid_request', `${param === '' ? 'the body' : param}: ${issue.message}`, {
    param: param || undefined,
  })
}

async function readText(c: Context, maxBytes: number): Promise<string> {
  const tooLarge = () => new ApiError('too_large', `the body is larger than ${maxBytes} bytes`)
  if (Number(c.req.header('content-length') ?? 0) > maxBytes) throw tooLarge()
  const body = c.req.raw.body
  if (body === null) return ''
  const chunks: Uint8Array[] = []
  let size = 0
  for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
    size += chunk.length
    if (size > maxBytes) throw tooLarge()
    chunks.push(chunk)
  }
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks))
  } catch {
    throw new ApiError('invalid_request', 'the body is not UTF-8')
  }
}

/** Brackets outside of strings, counted before parsing: what comes after goes through values recursively. */
function checkDepth(text: string, maxDepth: number): void {
  let depth = 0
  let inString = false
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (inString) {
      if (code === 0x5c) i++
      else if (code === 0x22) inString = false
    } else if (code === 0x22) inString = true
    else if (code === 0x7b || code === 0x5b) {
      if (++depth > maxDepth) throw new ApiError('invalid_request', `the body is nested deeper than ${maxDepth}`)
    } else if (code === 0x7d || code === 0x5d) depth--
  }
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
