// POST /v1/responses, GET and DELETE /v1/responses/:id. An answer is a list of items (reasoning, message, calls) that
// grows; streaming tells each change, the whole response is the list at the end. Stored responses live in memory, the
// oldest are forgotten.
import type { Context } from 'hono'
import type { EndReason, SessionEvent, Usage } from '../../session/events.js'
import type { ChatMessage } from '../../text/messages.js'
import { roughSize } from '../../text/roughSize.js'
import { withoutImages } from '../absentImages.js'
import { ApiError, isAbort, toApiError } from '../apiError.js'
import type { ServerSentEvent } from '../eventSource.js'
import { newId, nowSeconds } from '../ids.js'
import { jsonAnswer } from '../jsonAnswer.js'
import { jsonPieces } from '../jsonPieces.js'
import type { Served, Service } from '../service.js'
import { thinkingByEffort } from '../thinkingEffort.js'
import { onePlace, type Visit, visit } from '../visit.js'
import {
  inputMessages,
  type ResponsesRequest,
  responsesFormat,
  responsesRequest,
  responsesToolChoice,
  toolDefinitions,
} from './responsesSchema.js'
import { errorBody, logprobsBody } from './shapes.js'

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

export async function responses(c: Context, service: Service, store: ResponseStore): Promise<Response> {
  const answer = async (stay: Visit, request: ResponsesRequest, service: Served) => {
    const before = earlierMessages(request, store)
    const input =
      typeof request.input === 'string'
        ? [{ role: 'user', content: request.input }]
        : inputMessages(withoutImages(request.input, service.images))
    const conversation: ChatMessage[] = [...before, ...input]
    const system = request.instructions ? [{ role: 'system', content: request.instructions }] : []
    const stream = service.session.chat({
      messages: [...system, ...conversation],
      tools: toolDefinitions(request.tools, service.onNotice),
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
    const draft = new ResponseDraft(request, request.model ?? service.modelId)
    const finish = () => {
      if (request.store !== false) {
        store.add(draft.id, { messages: [...conversation, draft.answerMessage()], body: draft.body() })
      }
    }
    const events = service.metrics.watch(stream)
    if (request.stream) {
      return await stay.stream(streamEvents(events, draft, finish), error => draft.failureEvent(error))
    }
    for await (const event of events) for (const _ of draft.take(event));
    finish()
    return jsonAnswer(c, draft.body())
  }
  return await visit(c, service, responsesRequest, onePlace, answer, earlyFailure)
}

/** Before there is a response that could fail. */
function earlyFailure(error: unknown): ServerSentEvent | null {
  if (isAbort(error)) return null
  const body = { ...errorBody(toApiError(error)).error, type: 'error', sequence_number: 0 }
  return { event: 'error', data: JSON.stringify(body) }
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

type OutputPart = { type: 'output_text'; text: string; annotations: never[]; logprobs: unknown[] }
type OutputItem =
  | { id: string; type: 'message'; status: string; role: 'assistant'; content: OutputPart[] }
  | {
      id: string
      type: 'reasoning'
      status: string
      summary: never[]
      content: { type: 'reasoning_text'; text: string }[]
    }
  | { id: string; type: 'function_call'; status: string; call_id: string; name: string; arguments: string }

/** A response while it grows: session events in, API events out. */
class ResponseDraft {
  readonly id = newId('resp_')
  private readonly created = nowSeconds()
  private readonly output: OutputItem[] = []
  private open: OutputItem | null = null
  private usage: Usage | null = null
  private end: EndReason | null = null
  private sequence = 0

  constructor(
    private readonly request: ResponsesRequest,
    private readonly model: string,
  ) {}

  body(failure: ApiError | null = null) {
    const { request, usage } = this
    const status =
      failure !== null
        ? 'failed'
        : this.end === null
          ? 'in_progress'
          : this.end === 'length'
            ? 'incomplete'
            : 'completed'
    return {
      id: this.id,
      object: 'response',
      created_at: this.created,
      status,
      background: false,
      error: failure === null ? null : { code: failure.details.code ?? 'server_error', message: failure.message },
      incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
      instructions: request.instructions ?? null,
      max_output_tokens: request.max_output_tokens ?? null,
      model: this.model,
      output: this.output,
      parallel_tool_calls: request.parallel_tool_calls ?? true,
      previous_response_id: request.previous_response_id ?? null,
      reasoning: { effort: request.reasoning?.effort ?? null, summary: null },
      store: request.store ?? true,
      temperature: request.temperature ?? null,
      text: { format: request.text?.format ?? { type: 'text' } },
      tool_choice: request.tool_choice ?? 'auto',
      tools: request.tools ?? [],
      top_p: request.top_p ?? null,
      truncation: 'disabled',
      metadata: request.metadata ?? {},
      usage:
        usage === null || this.end === null
          ? null
          : {
              input_tokens: usage.promptTokens,
              input_tokens_details: { cached_tokens: usage.cachedTokens },
              output_tokens: usage.answerTokens,
              output_tokens_details: { reasoning_tokens: usage.thinkingTokens },
              total_tokens: usage.promptTokens + usage.answerTokens,
            },
    }
  }

  /** The answer as a message, for a response that goes on from this one. */
  answerMessage(): ChatMessage {
    const texts = this.output.flatMap(item => (item.type === 'message' ? item.content.map(part => part.text) : []))
    const thoughts = this.output.flatMap(item => (item.type === 'reasoning' ? item.content.map(part => part.text) : []))
    const calls = this.output.flatMap(item =>
      item.type === 'function_call'
        ? [{ id: item.call_id, type: 'function', function: { name: item.name, arguments: item.arguments } }]
        : [],
    )
    return {
      role: 'assistant',
      content: texts.join(''),
      ...(thoughts.length > 0 && { reasoning_content: thoughts.join('') }),
      ...(calls.length > 0 && { tool_calls: calls }),
    }
  }

  *begin(): Generator<ServerSentEvent> {
    yield this.message('response.created', { response: this.body() })
    yield this.message('response.in_progress', { response: this.body() })
  }

  *take(event: SessionEvent): Generator<ServerSentEvent> {
    if (event.type === 'usage') this.usage = event
    else if (event.type === 'text') {
      if (this.open?.type !== 'message') {
        yield* this.closeItem()
        const item: OutputItem = {
          id: newId('msg_'),
          type: 'message',
          status: 'in_progress',
          role: 'assistant',
          content: [],
        }
        yield this.openItem(item)
        const part: OutputPart = { type: 'output_text', text: '', annotations: [], logprobs: [] }
        item.content.push(part)
        yield this.message('response.content_part.added', { ...this.place(item), content_index: 0, part: { ...part } })
      }
      const item = this.open as OutputItem & { type: 'message' }
      const logprobs = event.logprobs ? logprobsBody(event.logprobs) : []
      item.content[0].text += event.text
      item.content[0].logprobs.push(...logprobs)
      yield this.message('response.output_text.delta', {
        ...this.place(item),
        content_index: 0,
        delta: event.text,
        logprobs,
      })
    } else if (event.type === 'thinking') {
      if (this.open?.type !== 'reasoning') {
        yield* this.closeItem()
        const item: OutputItem = {
          id: newId('rs_'),
          type: 'reasoning',
          status: 'in_progress',
          summary: [],
          content: [],
        }
        yield this.openItem(item)
        item.content.push({ type: 'reasoning_text', text: '' })
        yield this.message('response.content_part.added', {
          ...this.place(item),
          content_index: 0,
          part: { type: 'reasoning_text', text: '' },
        })
      }
      const item = this.open as OutputItem & { type: 'reasoning' }
      item.content[0].text += event.text
      yield this.message('response.reasoning_text.delta', { ...this.place(item), content_index: 0, delta: event.text })
    } else if (event.type === 'toolCall') {
      yield* this.closeItem()
      const item: OutputItem = {
        id: newId('fc_'),
        type: 'function_call',
        status: 'in_progress',
        call_id: event.id,
        name: event.name,
        arguments: '',
      }
      yield this.openItem(item)
      yield this.message('response.function_call_arguments.delta', { ...this.place(item), delta: event.arguments })
      item.arguments = event.arguments
      yield this.message('response.function_call_arguments.done', {
        ...this.place(item),
        name: item.name,
        arguments: item.arguments,
      })
      yield* this.closeItem()
    } else {
      this.end = event.reason
      yield* this.closeItem()
      yield this.message(event.reason === 'length' ? 'response.incomplete' : 'response.completed', {
        response: this.body(),
      })
    }
  }

  failureEvent(error: unknown): ServerSentEvent | null {
    if (this.sequence === 0 || isAbort(error)) return earlyFailure(error)
    return this.message('response.failed', { response: this.body(toApiError(error)) })
  }

  private message(type: string, body: object): ServerSentEvent {
    return { event: type, data: jsonPieces({ type, sequence_number: this.sequence++, ...body }) }
  }

  private place(item: OutputItem) {
    return { item_id: item.id, output_index: this.output.indexOf(item) }
  }

  private openItem(item: OutputItem): ServerSentEvent {
    this.output.push(item)
    this.open = item
    return this.message('response.output_item.added', {
      output_index: this.output.length - 1,
      item,
    })
  }

  private *closeItem(): Generator<ServerSentEvent> {
    const item = this.open
    if (item === null) return
    this.open = null
    item.status = this.end === 'length' ? 'incomplete' : 'completed'
    if (item.type === 'message') {
      const [part] = item.content
      yield this.message('response.output_text.done', {
        ...this.place(item),
        content_index: 0,
        text: part.text,
        logprobs: part.logprobs,
      })
      yield this.message('response.content_part.done', { ...this.place(item), content_index: 0, part })
    } else if (item.type === 'reasoning') {
      const [part] = item.content
      yield this.message('response.reasoning_text.done', { ...this.place(item), content_index: 0, text: part.text })
      yield this.message('response.content_part.done', { ...this.place(item), content_index: 0, part })
    }
    yield this.message('response.output_item.done', { output_index: this.output.indexOf(item), item })
  }
}
