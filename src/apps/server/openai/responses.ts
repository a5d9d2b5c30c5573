// POST /v1/responses, GET and DELETE /v1/responses/:id.
import type { Context } from 'hono'
import type { ChatMessage, SessionEvent } from '../../../index.js'
import { withoutImages } from '../absentImages.js'
import { thinkingByEffort } from '../answerPrefix.js'
import { ApiError } from '../apiError.js'
import type { ServerSentEvent } from '../eventSource.js'
import { jsonAnswer } from '../jsonAnswer.js'
import type { Env, Served } from '../middleware.js'
import { eventAnswer } from '../streamAnswer.js'
import { ResponseDraft } from './responseBuilder.js'
import type { ResponseStore } from './responseStore.js'
import {
  inputMessages,
  type ResponsesRequest,
  responsesFormat,
  responsesToolChoice,
  toolDefinitions,
} from './responsesSchema.js'

export async function responses(
  c: Context<Env<ResponsesRequest>>,
  request: ResponsesRequest,
  { session, modelId }: Served,
): Promise<Response> {
  const { server, active } = c.var
  const before = earlierMessages(request, server.storedResponses)
  const input =
    typeof request.input === 'string'
      ? [{ role: 'user', content: request.input }]
      : inputMessages(withoutImages(request.input, server.images))
  const conversation: ChatMessage[] = [...before, ...input]
  const system = request.instructions ? [{ role: 'system', content: request.instructions }] : []
  const stream = session.chat({
    messages: [...system, ...conversation],
    tools: toolDefinitions(request.tools, server.onNotice),
    toolChoice: responsesToolChoice(request.tool_choice),
    parallelToolCalls: request.parallel_tool_calls ?? undefined,
    responseFormat: responsesFormat(request),
    maxTokens: request.max_output_tokens ?? undefined,
    temperature: request.temperature ?? undefined,
    topP: request.top_p ?? undefined,
    logprobs: request.top_logprobs ?? undefined,
    thinking: request.reasoning?.effort == null ? undefined : thinkingByEffort(request.reasoning.effort),
    cacheScope: active.scope,
    signal: active.signal,
  })
  const draft = new ResponseDraft(request, request.model ?? modelId)
  const finish = () => {
    if (request.store !== false) {
      const messages = [...conversation, draft.answerMessage()]
      server.storedResponses.add(draft.id, { messages, body: draft.body() })
    }
  }
  const events = server.metrics.watch(stream)
  if (request.stream) {
    return await eventAnswer(c, streamEvents(events, draft, finish), error => draft.failureEvent(error))
  }
  for await (const event of events) for (const _ of draft.take(event));
  finish()
  return jsonAnswer(c, draft.body())
}

export function storedResponse(c: Context<Env>, id: string): Response {
  if ((c.req.query('stream') ?? 'false') !== 'false') {
    throw new ApiError('invalid_request', 'stream is not supported for retrieval', { param: 'stream' })
  }
  const entry = c.var.server.storedResponses.get(id)
  if (entry === undefined) throw new ApiError('not_found', `there is no response ${id}`)
  return jsonAnswer(c, entry.body)
}

export function deleteResponse(c: Context<Env>, id: string): Response {
  if (!c.var.server.storedResponses.delete(id)) throw new ApiError('not_found', `there is no response ${id}`)
  return c.json({ id, object: 'response', deleted: true })
}

function earlierMessages(request: ResponsesRequest, store: ResponseStore): readonly ChatMessage[] {
  const id = request.previous_response_id
  if (id == null) return []
  const entry = store.get(id)
  if (entry === undefined) {
    throw new ApiError('not_found', `there is no response ${id} to go on from`, { param: 'previous_response_id' })
  }
  return entry.messages
}

/** Begins when the prompt is evaluated: what is wrong with the request is told by its status and not by an event. */
async function* streamEvents(
  events: AsyncIterable<SessionEvent>,
  draft: ResponseDraft,
  finish: () => void,
): AsyncGenerator<ServerSentEvent> {
  let begun = false
  for await (const event of events) {
    if (!begun) yield* draft.begin()
    begun = true
    yield* draft.take(event)
    if (event.type === 'end') finish()
  }
}
