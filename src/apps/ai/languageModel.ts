// One model as the AI SDK sees it: calls in, parts out, over a session that keeps what was said.
import type {
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3Content,
  LanguageModelV3FinishReason,
  LanguageModelV3GenerateResult,
  LanguageModelV3StreamPart,
  LanguageModelV3StreamResult,
  LanguageModelV3Usage,
  SharedV3Warning,
} from '@ai-sdk/provider'
import type { EndReason, Session, SessionEvent, Usage } from '../../index.js'
import { chatOptions } from './chatOptions.js'

export class MoefluxLanguageModel implements LanguageModelV3 {
  readonly specificationVersion = 'v3'
  readonly provider = 'moeflux'
  readonly supportedUrls = {}

  constructor(
    readonly modelId: string,
    /** Opens the model when the first call comes. */
    private readonly session: () => Promise<Session>,
  ) {}

  async doGenerate(call: LanguageModelV3CallOptions): Promise<LanguageModelV3GenerateResult> {
    const { options, warnings } = chatOptions(call)
    const answer = await (await this.session()).chat(options).answer()
    const content: LanguageModelV3Content[] = []
    if (answer.thinking !== '') content.push({ type: 'reasoning', text: answer.thinking })
    if (answer.text !== '') content.push({ type: 'text', text: answer.text })
    for (const { id, name, arguments: input } of answer.toolCalls) {
      content.push({ type: 'tool-call', toolCallId: id, toolName: name, input })
    }
    return { content, finishReason: finishReason(answer.reason), usage: usageOf(answer.usage), warnings }
  }

  async doStream(call: LanguageModelV3CallOptions): Promise<LanguageModelV3StreamResult> {
    const { options, warnings } = chatOptions(call)
    const events = (await this.session()).chat(options)
    // What is wrong with the call is thrown here, and not in the middle of a stream.
    const first = await events.next()
    const parts = streamParts(first, events, warnings)
    const stream = new ReadableStream<LanguageModelV3StreamPart>({
      async pull(controller) {
        const { done, value } = await parts.next()
        if (done) controller.close()
        else controller.enqueue(value)
      },
      async cancel() {
        await events.return()
      },
    })
    return { stream }
  }
}

async function* streamParts(
  first: IteratorResult<SessionEvent, void>,
  rest: AsyncIterable<SessionEvent>,
  warnings: SharedV3Warning[],
): AsyncGenerator<LanguageModelV3StreamPart> {
  yield { type: 'stream-start', warnings }
  let open: 'text' | 'reasoning' | null = null
  let blocks = 0
  let usage: Usage | null = null
  const close = function* (): Generator<LanguageModelV3StreamPart> {
    if (open !== null) yield { type: `${open}-end`, id: String(blocks) }
    open = null
  }
  const events = async function* () {
    if (!first.done) yield first.value
    yield* rest
  }
  try {
    for await (const event of events()) {
      if (event.type === 'usage') usage = event
      else if (event.type === 'end') {
        yield* close()
        yield { type: 'finish', finishReason: finishReason(event.reason), usage: usageOf(usage as Usage) }
      } else if (event.type === 'toolCallStart') {
        yield* close()
        yield { type: 'tool-input-start', id: event.id, toolName: event.name }
      } else if (event.type === 'toolCallDelta') {
        yield { type: 'tool-input-delta', id: event.id, delta: event.arguments }
      } else if (event.type === 'toolCall' || event.type === 'toolCallDropped') {
        yield { type: 'tool-input-end', id: event.id }
        if (event.type === 'toolCallDropped') continue // it was none
        yield { type: 'tool-call', toolCallId: event.id, toolName: event.name, input: event.arguments }
      } else {
        const kind = event.type === 'thinking' ? 'reasoning' : 'text'
        if (open !== kind) {
          yield* close()
          open = kind
          blocks++
          yield { type: `${kind}-start`, id: String(blocks) }
        }
        yield { type: `${kind}-delta`, id: String(blocks), delta: event.text }
      }
    }
  } catch (error) {
    yield { type: 'error', error }
  }
}

function finishReason(reason: EndReason): LanguageModelV3FinishReason {
  return { unified: reason === 'tool_calls' ? 'tool-calls' : reason, raw: reason }
}

function usageOf(usage: Usage): LanguageModelV3Usage {
  return {
    inputTokens: {
      total: usage.promptTokens,
      noCache: usage.newTokens - usage.cacheWrittenTokens,
      cacheRead: usage.cachedTokens,
      cacheWrite: usage.cacheWrittenTokens,
    },
    outputTokens: {
      total: usage.answerTokens,
      text: usage.answerTokens - usage.thinkingTokens,
      reasoning: usage.thinkingTokens,
    },
  }
}
