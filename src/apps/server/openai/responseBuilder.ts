// A response while it grows: a list of items (reasoning, message, calls). Session events go in; events of the API that tell
// each change come out, and the whole response is the list at the end.
import type { ChatMessage, EndReason, SessionEvent, Usage } from '../../../index.js'
import type { ToolCallEvent } from '../../../internal.js'
import { type ApiError, isAbort, toApiError } from '../apiError.js'
import type { ServerSentEvent } from '../eventSource.js'
import { newId, nowSeconds } from '../ids.js'
import { jsonPieces } from '../jsonAnswer.js'
import { errorBody, logprobsBody } from './chatShapes.js'
import { CustomInput, customInput } from './customInput.js'
import type { ResponsesRequest } from './responsesSchema.js'

/** Before there is a response that could fail. */
export function earlyFailure(error: unknown): ServerSentEvent | null {
  if (isAbort(error)) return null
  const body = { ...errorBody(toApiError(error)).error, type: 'error', sequence_number: 0 }
  return { event: 'error', data: JSON.stringify(body) }
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
  | CallItem
type CallItem =
  | { id: string; type: 'function_call'; status: string; call_id: string; name: string; arguments: string }
  | { id: string; type: 'custom_tool_call'; status: string; call_id: string; name: string; input: string }

export class ResponseDraft {
  readonly id = newId('resp_')
  private readonly created = nowSeconds()
  private readonly output: OutputItem[] = []
  private open: OutputItem | null = null
  private readonly dropped = new Set<OutputItem>() // calls that were none: told of, and not part of the answer
  private input = new CustomInput() // of a custom call that is being written
  private readonly customTools: ReadonlySet<string | undefined>
  private usage: Usage | null = null
  private end: EndReason | null = null
  private sequence = 0

  constructor(
    private readonly request: ResponsesRequest,
    private readonly model: string,
  ) {
    this.customTools = new Set(request.tools?.filter(({ type }) => type === 'custom').map(({ name }) => name))
  }

  private get answer(): OutputItem[] {
    return this.output.filter(item => !this.dropped.has(item))
  }

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
      output: this.answer,
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
    const texts = this.answer.flatMap(item => (item.type === 'message' ? item.content.map(part => part.text) : []))
    const thoughts = this.answer.flatMap(item => (item.type === 'reasoning' ? item.content.map(part => part.text) : []))
    const calls = this.answer.flatMap(item => {
      if (item.type !== 'function_call' && item.type !== 'custom_tool_call') return []
      const text = item.type === 'function_call' ? item.arguments : { input: item.input }
      return [{ id: item.call_id, type: 'function', function: { name: item.name, arguments: text } }]
    })
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
    } else if (event.type === 'end') {
      this.end = event.reason
      yield* this.closeItem()
      yield this.message(event.reason === 'length' ? 'response.incomplete' : 'response.completed', {
        response: this.body(),
      })
    } else yield* this.takeCall(event)
  }

  private *takeCall(event: ToolCallEvent): Generator<ServerSentEvent> {
    if (event.type === 'toolCallStart') {
      yield* this.closeItem()
      this.input = new CustomInput()
      const about = { status: 'in_progress', call_id: event.id, name: event.name }
      yield this.openItem(
        this.customTools.has(event.name)
          ? { id: newId('ctc_'), type: 'custom_tool_call', ...about, input: '' }
          : { id: newId('fc_'), type: 'function_call', ...about, arguments: '' },
      )
      return
    }
    const item = this.open as CallItem
    if (event.type === 'toolCallDelta') yield* this.growCall(item, event.arguments)
    else if (event.type === 'toolCall') {
      if (item.type === 'custom_tool_call') yield* this.finishInput(item, customInput(event.arguments))
      else {
        const { name, arguments: text } = item
        yield this.message('response.function_call_arguments.done', { ...this.place(item), name, arguments: text })
      }
      yield* this.closeItem()
    } else {
      this.dropped.add(item)
      yield* this.closeItem()
    }
  }

  private *growCall(item: CallItem, text: string): Generator<ServerSentEvent> {
    if (item.type === 'function_call') {
      item.arguments += text
      yield this.message('response.function_call_arguments.delta', { ...this.place(item), delta: text })
      return
    }
    const delta = this.input.push(text)
    if (delta === '') return
    item.input += delta
    yield this.message('response.custom_tool_call_input.delta', { ...this.place(item), delta })
  }

  /** What the model wrote otherwise than it should comes at once. */
  private *finishInput(item: CallItem & { type: 'custom_tool_call' }, input: string): Generator<ServerSentEvent> {
    const rest = input.startsWith(item.input) ? input.slice(item.input.length) : ''
    if (rest !== '') yield this.message('response.custom_tool_call_input.delta', { ...this.place(item), delta: rest })
    item.input = input
    yield this.message('response.custom_tool_call_input.done', { ...this.place(item), input })
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
    item.status = this.end === 'length' || this.dropped.has(item) ? 'incomplete' : 'completed'
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
