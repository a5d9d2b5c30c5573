// POST /api/chat and /api/generate: the same answer in two shapes, as lines of JSON while it is made, or as one.
import type { Context } from 'hono'
import type { EndReason, SessionEvent, Usage } from '../../../index.js'
import { type ApiError, isAbort, toApiError } from '../apiError.js'
import type { ServerSentEvent } from '../eventSource.js'
import { jsonAnswer } from '../jsonAnswer.js'
import { shortMessage } from '../logLine.js'
import type { Env, Served } from '../middleware.js'
import { parsedInput } from '../parseToolInput.js'
import { lineAnswer } from '../streamAnswer.js'
import { answerOptions, generateMessages, promptOptions, rawPrompt, thinkingOption } from './options.js'
import type { AnswerFields, ChatRequest, GenerateRequest } from './schemas.js'

/** What has come of an answer: since the last line, or of all of it. */
interface Part {
  text: string
  thinking: string
  calls: { readonly name: string; readonly arguments: string }[]
}

type PartBody = (part: Part) => object

export async function chat(
  c: Context<Env<ChatRequest>>,
  request: ChatRequest,
  { session, modelId }: Served,
): Promise<Response> {
  const { server, active } = c.var
  const model = request.model ?? modelId
  // Clients have a model loaded, and find out whether it exists, by asking nothing of it.
  if (asksNothing(request)) return c.json(idleBody(model, chatPart, 'load'))
  const events = session.chat({
    ...answerOptions(request),
    tools: request.tools ?? undefined,
    ...promptOptions(request, server.images),
    cacheScope: active.scope,
    signal: active.signal,
  })
  return await respond(c, server.metrics.watch(events), model, request.stream !== false, chatPart)
}

export function chatWithoutModel(c: Context<Env<ChatRequest>>, request: ChatRequest, id: string): Response | null {
  return asksNothing(request) ? unloadAnswer(c, request, id, chatPart) : null
}

export async function generate(
  c: Context<Env<GenerateRequest>>,
  request: GenerateRequest,
  { session, modelId }: Served,
): Promise<Response> {
  const { server, active } = c.var
  const model = request.model ?? modelId
  if (!request.prompt) return c.json(idleBody(model, generatePart, 'load'))
  const options = { ...answerOptions(request), cacheScope: active.scope, signal: active.signal }
  const events = request.raw
    ? session.complete({ ...options, prompt: rawPrompt(request, server.images) })
    : session.chat({
        ...options,
        messages: generateMessages(request, server.images),
        thinking: thinkingOption(request),
      })
  return await respond(c, server.metrics.watch(events), model, request.stream !== false, generatePart)
}

export function generateWithoutModel(
  c: Context<Env<GenerateRequest>>,
  request: GenerateRequest,
  id: string,
): Response | null {
  return request.prompt ? null : unloadAnswer(c, request, id, generatePart)
}

function asksNothing({ messages }: ChatRequest): boolean {
  return messages == null || messages.length === 0
}

/**
 * Unloads a model that nothing is asked of and that is to be kept for no time. Null: it is to be
 * kept, or is pinned.
 */
function unloadAnswer<T extends AnswerFields>(
  c: Context<Env<T>>,
  { model, keep_alive }: T,
  id: string,
  body: PartBody,
): Response | null {
  const isUnloaded = keep_alive === 0 && c.var.server.shelf.letGo(id)
  return isUnloaded ? c.json(idleBody(model ?? id, body, 'unload')) : null
}

function chatPart({ text, thinking, calls }: Part): object {
  const tool_calls = calls.map(call => ({
    function: { name: call.name, arguments: parsedInput(call.arguments) },
  }))
  return {
    message: {
      role: 'assistant',
      content: text,
      ...(thinking !== '' && { thinking }),
      ...(calls.length > 0 && { tool_calls }),
    },
  }
}

function generatePart({ text, thinking }: Part): object {
  return { response: text, ...(thinking !== '' && { thinking }) }
}

async function respond<T>(
  c: Context<Env<T>>,
  events: AsyncIterable<SessionEvent>,
  model: string,
  streams: boolean,
  body: PartBody,
): Promise<Response> {
  if (streams) return await lineAnswer(c, streamedLines(events, model, body), errorLine)
  const whole = emptyPart()
  let last: object = {}
  for await (const line of answerLines(events)) {
    whole.text += line.part.text
    whole.thinking += line.part.thinking
    whole.calls.push(...line.part.calls)
    last = line.end ?? {}
  }
  return jsonAnswer(c, { ...head(model), ...body(whole), ...last })
}

async function* streamedLines(
  events: AsyncIterable<SessionEvent>,
  model: string,
  body: PartBody,
): AsyncGenerator<ServerSentEvent> {
  for await (const { part, end } of answerLines(events)) {
    yield { data: JSON.stringify({ ...head(model), ...body(part), ...(end ?? { done: false }) }) }
  }
}

/** What each event adds; the last one ends the answer. */
async function* answerLines(events: AsyncIterable<SessionEvent>): AsyncGenerator<{ part: Part; end: object | null }> {
  const started = performance.now()
  let usage: Usage | null = null
  for await (const event of events) {
    const part = emptyPart()
    if (event.type === 'usage') usage = event
    else if (event.type === 'end') {
      yield { part, end: endBody(event.reason, usage as Usage, performance.now() - started) }
    } else {
      if (event.type === 'text') part.text = event.text
      else if (event.type === 'thinking') part.thinking = event.text
      else if (event.type === 'toolCall') part.calls.push(event)
      else continue // calls come whole
      yield { part, end: null }
    }
  }
}

function emptyPart(): Part {
  return { text: '', thinking: '', calls: [] }
}

function head(model: string) {
  return { model, created_at: new Date().toISOString() }
}

/** Times are in nanoseconds. */
function endBody(reason: EndReason, usage: Usage, milliseconds: number): object {
  return {
    done: true,
    done_reason: reason === 'length' ? 'length' : 'stop',
    total_duration: Math.round(milliseconds * 1e6),
    load_duration: 0,
    prompt_eval_count: usage.promptTokens,
    prompt_eval_duration: Math.round(usage.promptSeconds * 1e9),
    eval_count: usage.answerTokens,
    eval_duration: Math.round(usage.answerSeconds * 1e9),
  }
}

function idleBody(model: string, body: PartBody, reason: 'load' | 'unload'): object {
  return { ...head(model), ...body(emptyPart()), done: true, done_reason: reason }
}

export function errorBody(error: ApiError): object {
  return { error: shortMessage(error.message) }
}

function errorLine(error: unknown): ServerSentEvent | null {
  return isAbort(error) ? null : { data: JSON.stringify(errorBody(toApiError(error))) }
}
