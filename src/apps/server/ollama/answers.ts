// POST /api/chat and /api/generate: the same answer in two shapes, as lines of JSON while it is made, or as one.
import type { Context } from 'hono'
import type { EndReason, SessionEvent, Usage } from '../../../index.js'
import { type ApiError, isAbort, toApiError } from '../apiError.js'
import type { ServerSentEvent } from '../eventSource.js'
import { jsonAnswer } from '../jsonAnswer.js'
import { shortMessage } from '../logLine.js'
import { parsedInput } from '../parseToolInput.js'
import type { Served, ServerContext } from '../serverContext.js'
import { onePlace, type Visit, visit } from '../visit.js'
import { answerOptions, generateMessages, promptOptions, rawPrompt, thinkingOption } from './options.js'
import { type AnswerFields, type ChatRequest, chatRequest, type GenerateRequest, generateRequest } from './schemas.js'

/** What has come of an answer: since the last line, or of all of it. */
interface Part {
  text: string
  thinking: string
  calls: { readonly name: string; readonly arguments: string }[]
}

type PartBody = (part: Part) => object

export async function chat(c: Context, server: ServerContext): Promise<Response> {
  const withoutModel = (request: ChatRequest, id: string) =>
    asksNothing(request) ? unloaded(c, server, request, id, chatPart) : null
  const answer = async (stay: Visit, request: ChatRequest, server: Served) => {
    const model = request.model ?? server.modelId
    // How clients ask whether a model is there, and have it loaded.
    if (asksNothing(request)) return c.json(idleBody(model, chatPart, 'load'))
    const events = server.session.chat({
      ...answerOptions(request),
      tools: request.tools ?? undefined,
      ...promptOptions(request, server.images),
      cacheScope: stay.scope,
      signal: stay.signal,
    })
    return await respond(c, stay, server.metrics.watch(events), model, request.stream !== false, chatPart)
  }
  return await visit(c, server, chatRequest, onePlace, answer, { withoutModel })
}

export async function generate(c: Context, server: ServerContext): Promise<Response> {
  const withoutModel = (request: GenerateRequest, id: string) =>
    request.prompt ? null : unloaded(c, server, request, id, generatePart)
  const answer = async (stay: Visit, request: GenerateRequest, server: Served) => {
    const model = request.model ?? server.modelId
    if (!request.prompt) return c.json(idleBody(model, generatePart, 'load'))
    const options = { ...answerOptions(request), cacheScope: stay.scope, signal: stay.signal }
    const events = request.raw
      ? server.session.complete({ ...options, prompt: rawPrompt(request, server.images) })
      : server.session.chat({
          ...options,
          messages: generateMessages(request, server.images),
          thinking: thinkingOption(request),
        })
    return await respond(c, stay, server.metrics.watch(events), model, request.stream !== false, generatePart)
  }
  return await visit(c, server, generateRequest, onePlace, answer, { withoutModel })
}

function asksNothing({ messages }: ChatRequest): boolean {
  return messages == null || messages.length === 0
}

/** To keep a model for no time and ask nothing of it means to unload it. Null where that is not meant, or it cannot go. */
function unloaded(
  c: Context,
  { shelf }: ServerContext,
  { model, keep_alive }: AnswerFields,
  id: string,
  body: PartBody,
): Response | null {
  return keep_alive === 0 && shelf.letGo(id) ? c.json(idleBody(model ?? id, body, 'unload')) : null
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

async function respond(
  c: Context,
  stay: Visit,
  events: AsyncIterable<SessionEvent>,
  model: string,
  streams: boolean,
  body: PartBody,
): Promise<Response> {
  if (streams) return await stay.streamLines(streamedLines(events, model, body), errorLine)
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
