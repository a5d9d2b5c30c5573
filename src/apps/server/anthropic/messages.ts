// POST /v1/messages and /v1/messages/count_tokens.
import { createHash } from 'node:crypto'
import type { Context } from 'hono'
import type { EndReason, SessionEvent, Usage } from '../../../index.js'
import { type ApiError, type ApiErrorKind, isAbort, toApiError } from '../apiError.js'
import type { ServerSentEvent } from '../eventSource.js'
import { newId } from '../ids.js'
import { jsonAnswer } from '../jsonAnswer.js'
import { JsonReader } from '../jsonReader.js'
import { shortMessage } from '../logLine.js'
import type { Env, Served } from '../middleware.js'
import { parsedInput } from '../parseToolInput.js'
import { eventAnswer } from '../streamAnswer.js'
import { asksForCaching, promptOptions } from './prompt.js'
import type { CountRequest, MessagesRequest } from './schemas.js'

const INPUT_LIMITS = { maxDepth: 200, maxValues: 2 ** 17 } // of a call

interface Head {
  readonly id: string
  readonly model: string
  readonly caching: boolean
}

export async function messages(
  c: Context<Env<MessagesRequest>>,
  request: MessagesRequest,
  { session, modelId }: Served,
): Promise<Response> {
  const { server, active } = c.var
  const format = request.output_config?.format ?? request.output_format
  const stream = session.chat({
    ...promptOptions(request, server),
    maxTokens: request.max_tokens,
    thinkingBudget: request.thinking?.budget_tokens,
    stop: request.stop_sequences ?? undefined,
    temperature: request.temperature ?? undefined,
    topP: request.top_p ?? undefined,
    topK: request.top_k ?? undefined,
    responseFormat: format ? { type: 'json_schema', schema: format.schema ?? {} } : undefined,
    cacheScope: active.scope,
    signal: active.signal,
  })
  const events = server.metrics.watch(stream)
  const head = { id: newId('msg_'), model: request.model ?? modelId, caching: asksForCaching(request) }
  if (request.stream) return await eventAnswer(c, streamEvents(events, head), errorEvent)
  return jsonAnswer(c, await wholeMessage(events, head))
}

export async function countTokens(
  c: Context<Env<CountRequest>>,
  request: CountRequest,
  { session }: Served,
): Promise<Response> {
  const { server, active } = c.var
  const options = { ...promptOptions(request, server), cacheScope: active.scope, signal: active.signal }
  return c.json({ input_tokens: await session.countTokens(options) })
}

type Block =
  | { type: 'text'; text: string }
  | { type: 'thinking'; thinking: string; signature: string }
  | { type: 'tool_use'; id: string; name: string; input: unknown }

async function wholeMessage(events: AsyncIterable<SessionEvent>, head: Head) {
  const content: Block[] = []
  let usage: Usage | null = null
  let end: { reason: EndReason; stopSequence: string | null } = { reason: 'stop', stopSequence: null }
  for await (const event of events) {
    const last = content.at(-1)
    if (event.type === 'usage') usage = event
    else if (event.type === 'end') end = event
    else if (event.type === 'text') {
      if (last?.type === 'text') last.text += event.text
      else content.push({ type: 'text', text: event.text })
    } else if (event.type === 'thinking') {
      if (last?.type === 'thinking') last.thinking += event.text
      else content.push({ type: 'thinking', thinking: event.text, signature: '' })
    } else if (event.type === 'toolCall') {
      content.push({ type: 'tool_use', id: event.id, name: event.name, input: parsedInput(event.arguments) })
    }
  }
  for (const block of content) if (block.type === 'thinking') block.signature = signature(block.thinking)
  return {
    id: head.id,
    type: 'message',
    role: 'assistant',
    model: head.model,
    content,
    stop_reason: stopReason(end.reason, end.stopSequence),
    stop_sequence: end.stopSequence,
    usage: usageBody(usage as Usage, head.caching),
  }
}

async function* streamEvents(events: AsyncIterable<SessionEvent>, head: Head): AsyncGenerator<ServerSentEvent> {
  const message = (type: string, body: object): ServerSentEvent => ({
    event: type,
    data: JSON.stringify({ type, ...body }),
  })
  let index = -1
  let open: 'text' | 'thinking' | null = null
  let thought = ''
  let usage: Usage | null = null
  let input = new InputDeltas()
  const inputDelta = function* (text: string) {
    const delta = { type: 'input_json_delta', partial_json: text }
    if (text !== '') yield message('content_block_delta', { index, delta })
  }
  const closeBlock = function* () {
    if (open === 'thinking') {
      yield message('content_block_delta', { index, delta: { type: 'signature_delta', signature: signature(thought) } })
      thought = ''
    }
    if (open !== null) yield message('content_block_stop', { index })
    open = null
  }
  for await (const event of events) {
    if (event.type === 'usage') {
      if (usage === null) {
        const empty = {
          id: head.id,
          type: 'message',
          role: 'assistant',
          model: head.model,
          content: [],
          stop_reason: null,
          stop_sequence: null,
        }
        yield message('message_start', { message: { ...empty, usage: usageBody(event, head.caching) } })
        yield message('ping', {})
      }
      usage = event
    } else if (event.type === 'end') {
      yield* closeBlock()
      const delta = { stop_reason: stopReason(event.reason, event.stopSequence), stop_sequence: event.stopSequence }
      yield message('message_delta', { delta, usage: usageBody(usage as Usage, head.caching) })
      yield message('message_stop', {})
    } else if (event.type === 'toolCallStart') {
      yield* closeBlock()
      index++
      const block = { type: 'tool_use', id: event.id, name: event.name, input: {} }
      yield message('content_block_start', { index, content_block: block })
      input = new InputDeltas()
    } else if (event.type === 'toolCallDelta') yield* inputDelta(input.push(event.arguments))
    else if (event.type === 'toolCall' || event.type === 'toolCallDropped') {
      if (event.type === 'toolCall') yield* inputDelta(input.rest(event.arguments))
      yield message('content_block_stop', { index })
    } else {
      if (open !== event.type) {
        yield* closeBlock()
        index++
        open = event.type
        const block =
          event.type === 'text' ? { type: 'text', text: '' } : { type: 'thinking', thinking: '', signature: '' }
        yield message('content_block_start', { index, content_block: block })
      }
      if (event.type === 'thinking') thought += event.text
      const delta =
        event.type === 'text'
          ? { type: 'text_delta', text: event.text }
          : { type: 'thinking_delta', thinking: event.text }
      yield message('content_block_delta', { index, delta })
    }
  }
}

/**
 * The parts of a call's input that are sent while it is written. Clients read them as growing JSON
 * and fail at what cannot become JSON: from there on nothing is sent.
 */
class InputDeltas {
  private readonly reader = new JsonReader(INPUT_LIMITS)
  private sent = 0 // characters
  private isBroken = false

  /** The part of the text that may be sent. */
  push(text: string): string {
    if (this.isBroken) return ''
    try {
      this.reader.push(text)
    } catch {
      this.isBroken = true
      return ''
    }
    this.sent += text.length
    return text
  }

  /** The part of the whole input that was not sent. */
  rest(whole: string): string {
    return whole.slice(this.sent)
  }
}

/** Tokens written to the cache count apart only if the request asked for caching. */
function usageBody(usage: Usage, caching: boolean) {
  const written = caching ? usage.cacheWrittenTokens : 0
  return {
    input_tokens: usage.newTokens - written,
    cache_creation_input_tokens: written,
    cache_read_input_tokens: usage.cachedTokens,
    output_tokens: usage.answerTokens,
    service_tier: 'standard',
  }
}

function stopReason(reason: EndReason, stopSequence: string | null): string {
  if (reason === 'tool_calls') return 'tool_use'
  if (reason === 'length') return 'max_tokens'
  return stopSequence === null ? 'end_turn' : 'stop_sequence'
}

/** Clients return thinking with its signature; this one only identifies the text. */
function signature(thinking: string): string {
  return createHash('sha256').update(thinking).digest('base64')
}

const TYPES: Record<ApiErrorKind, string> = {
  invalid_request: 'invalid_request_error',
  authentication: 'authentication_error',
  permission: 'permission_error',
  not_found: 'not_found_error',
  too_large: 'request_too_large',
  rate_limit: 'rate_limit_error',
  timeout: 'timeout_error',
  server: 'api_error',
  overloaded: 'overloaded_error',
}

export function errorBody(error: ApiError, requestId?: string) {
  const { code, anthropicMessage } = error.details
  const message = shortMessage(anthropicMessage ?? error.message)
  return {
    type: 'error',
    // The API has no codes: one is added to faults of the server, for its operator.
    error: { type: TYPES[error.kind], message, ...(error.kind === 'server' && code && { code }) },
    ...(requestId !== undefined && { request_id: requestId }),
  }
}

export function errorEvent(error: unknown): ServerSentEvent | null {
  return isAbort(error) ? null : { event: 'error', data: JSON.stringify(errorBody(toApiError(error))) }
}
