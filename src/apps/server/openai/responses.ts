// POST /v1/responses, GET and DELETE /v1/responses/:id. Stored responses live in memory, the oldest are forgotten.
import type { Context } from 'hono'
import type { ChatMessage, SessionEvent } from '../../../index.js'
import { roughSize } from '../../../internal.js'
import { withoutImages } from '../absentImages.js'
import { thinkingByEffort } from '../answerPrefix.js'
import { ApiError } from '../apiError.js'
import type { ServerSentEvent } from '../eventSource.js'
import { jsonAnswer } from '../jsonAnswer.js'
import type { Served, ServerContext } from '../serverContext.js'
import { onePlace, type Visit, visit } from '../visit.js'
import { earlyFailure, ResponseDraft } from './responseBuilder.js'
import {
  inputMessages,
  type ResponsesRequest,
  responsesFormat,
  responsesRequest,
  responsesToolChoice,
  toolDefinitions,
} from './responsesSchema.js'

interface Stored {
  readonly messages: readonly ChatMessage[] // without instructions
  readonly body: object
}

const MAX_STORED = 1024
const MAX_STORED_CHARACTERS = 64 * 2 ** 20

export class ResponseStore {
  private readonly entries = new Map<string, Stored & { readonly characters: number }>() // oldest first
  private characters = 0

  get(id: string): Stored | undefined {
    return this.entries.get(id)
  }

  add(id: string, entry: Stored): void {
    const characters = roughSize(entry)
    if (characters > MAX_STORED_CHARACTERS) return
    this.entries.set(id, { ...entry, characters })
    this.characters += characters
    for (const oldest of this.entries.keys()) {
      if (this.entries.size <= MAX_STORED && this.characters <= MAX_STORED_CHARACTERS) break
      this.delete(oldest)
    }
  }

  delete(id: string): boolean {
    this.characters -= this.entries.get(id)?.characters ?? 0
    return this.entries.delete(id)
  }
}

export async function responses(c: Context, server: ServerContext, store: ResponseStore): Promise<Response> {
  const answer = async (stay: Visit, request: ResponsesRequest, server: Served) => {
    const before = earlierMessages(request, store)
    const input =
      typeof request.input === 'string'
        ? [{ role: 'user', content: request.input }]
        : inputMessages(withoutImages(request.input, server.images))
    const conversation: ChatMessage[] = [...before, ...input]
    const system = request.instructions ? [{ role: 'system', content: request.instructions }] : []
    const stream = server.session.chat({
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
      cacheScope: stay.scope,
      signal: stay.signal,
    })
    const draft = new ResponseDraft(request, request.model ?? server.modelId)
    const finish = () => {
      if (request.store !== false) {
        store.add(draft.id, { messages: [...conversation, draft.answerMessage()], body: draft.body() })
      }
    }
    const events = server.metrics.watch(stream)
    if (request.stream) {
      return await stay.stream(streamEvents(events, draft, finish), error => draft.failureEvent(error))
    }
    for await (const event of events) for (const _ of draft.take(event));
    finish()
    return jsonAnswer(c, draft.body())
  }
  return await visit(c, server, responsesRequest, onePlace, answer, { onError: earlyFailure })
}

export function storedResponse(c: Context, store: ResponseStore, id: string): Response {
  if ((c.req.query('stream') ?? 'false') !== 'false') {
    throw new ApiError('invalid_request', 'stream is not supported for retrieval', { param: 'stream' })
  }
  const entry = store.get(id)
  if (entry === undefined) throw new ApiError('not_found', `there is no response ${id}`)
  return jsonAnswer(c, entry.body)
}

export function deleteResponse(c: Context, store: ResponseStore, id: string): Response {
  if (!store.delete(id)) throw new ApiError('not_found', `there is no response ${id}`)
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
