// POST /v1/chat/completions. Each of `n` choices is an answer of the session; they run at once over
// the same prompt.
import type { Context } from 'hono'
import type {
  ChatMessage,
  ChatOptions,
  ContentPart,
  Model,
  SessionEvent,
  TokenLogprobs,
  Usage,
} from '../../../index.js'
import { type PromptProgress, type ToolCallEvent, withPromptProgress } from '../../../internal.js'
import { type ImageHandling, withoutImages } from '../absentImages.js'
import { type BegunAnswer, begunAnswer } from '../answerPrefix.js'
import { ApiError } from '../apiError.js'
import type { ServerSentEvent } from '../eventSource.js'
import { newId, nowSeconds } from '../ids.js'
import { jsonAnswer, LazyList } from '../jsonAnswer.js'
import { mergeStreams } from '../mergeStreams.js'
import type { Env, Served } from '../middleware.js'
import { eventAnswer } from '../streamAnswer.js'
import type { ChatRequest } from './chatSchema.js'
import { errorEvent, logprobsBody, tokenLogprobsBody, usageBody } from './chatShapes.js'
import { collectAnswer } from './collectAnswer.js'
import { responseFormat, samplingOptions, stopOption, thinkingOption, tokenLimit, toolChoice } from './options.js'

export async function chatCompletions(
  c: Context<Env<ChatRequest>>,
  request: ChatRequest,
  { model, session, modelId }: Served,
): Promise<Response> {
  const { server, active } = c.var
  const options = chatOptions(request, model, server.images)
  const open = (i: number, more: Partial<ChatOptions> = {}) =>
    server.metrics.watch(
      session.chat({
        ...options,
        seed: options.seed === undefined ? undefined : options.seed + i,
        cacheScope: active.scope,
        signal: active.signal,
        ...more,
      }),
    )
  const count = request.n ?? 1
  const head = { id: newId('chatcmpl-'), created: nowSeconds(), model: request.model ?? modelId }
  if (!request.stream) {
    const answers = Array.from({ length: count }, (_, i) => open(i))
    return jsonAnswer(c, await wholeAnswer(answers, request, head))
  }
  // All choices have the same prompt: the first one reports its progress.
  const streams = Array.from({ length: count }, (_, i) =>
    request.return_progress && i === 0
      ? withPromptProgress(onPromptProgress => open(i, { onPromptProgress }))
      : open(i),
  )
  return await eventAnswer(c, streamChunks(streams, request, head), errorEvent)
}

function chatOptions(request: ChatRequest, model: Model, images: ImageHandling): ChatOptions {
  const messages = withoutImages(request.messages as readonly ChatMessage[], images)
  return {
    ...samplingOptions(request, model.vocabSize),
    tools: request.tools ?? undefined,
    toolChoice: toolChoice(request.tool_choice),
    parallelToolCalls: request.parallel_tool_calls ?? undefined,
    responseFormat: responseFormat(request),
    maxTokens: tokenLimit(request.max_completion_tokens, request.max_tokens),
    stop: stopOption(request.stop),
    logprobs: request.logprobs ? (request.top_logprobs ?? true) : undefined,
    thinking: thinkingOption(request),
    thinkingBudget: request.thinking_budget ?? undefined,
    templateVariables: request.chat_template_kwargs ?? undefined,
    ...(request.continue_final_message ? continuationOptions(messages) : { messages }),
  }
}

/**
 * The last message is the prefix of the answer. If it has no thinking, the answer continues without
 * thinking.
 */
function continuationOptions(messages: readonly ChatMessage[]): BegunAnswer & Pick<ChatOptions, 'thinking'> {
  const begun = begunAnswer(messages)
  const { content } = messages.at(-1) ?? {}
  const isText = (part: ContentPart) => typeof part.text === 'string'
  const isPlain = content == null ? !!begun?.thinkingPrefill : typeof content === 'string' || content.every(isText)
  if (begun === null || !isPlain) {
    throw new ApiError(
      'invalid_request',
      'continue_final_message: want a last message of the assistant, of plain text or thinking and without tool calls',
    )
  }
  return begun.thinkingPrefill ? begun : { ...begun, thinking: false }
}

interface Head {
  readonly id: string
  readonly created: number
  readonly model: string
}

async function wholeAnswer(streams: readonly AsyncIterable<SessionEvent>[], request: ChatRequest, head: Head) {
  const answers = await Promise.all(streams.map(collectAnswer))
  return {
    id: head.id,
    object: 'chat.completion',
    created: head.created,
    model: head.model,
    choices: answers.map((answer, index) => ({
      index,
      message: {
        role: 'assistant',
        content: answer.text === '' && answer.toolCalls.length > 0 ? null : answer.text,
        refusal: null,
        ...(answer.thinking !== '' && { reasoning_content: answer.thinking }),
        ...(answer.toolCalls.length > 0 && { tool_calls: answer.toolCalls.map(toolCallBody) }),
      },
      logprobs: request.logprobs ? { content: new LazyList(answer.logprobs, tokenLogprobsBody), refusal: null } : null,
      finish_reason: answer.finish,
    })),
    usage: usageBody(answers.map(answer => answer.usage)),
    system_fingerprint: null,
  }
}

async function* streamChunks(
  streams: readonly AsyncIterable<SessionEvent | PromptProgress>[],
  request: ChatRequest,
  head: Head,
): AsyncGenerator<ServerSentEvent> {
  const withUsage = request.stream_options?.include_usage === true
  const usages: Usage[] = []
  const calls = streams.map(() => 0)
  const chunk = (choices: unknown[], usage: unknown = null, more: object = {}): ServerSentEvent => ({
    data: JSON.stringify({
      id: head.id,
      object: 'chat.completion.chunk',
      created: head.created,
      model: head.model,
      system_fingerprint: null,
      choices,
      ...(withUsage && { usage }),
      ...more,
    }),
  })
  const choice = (index: number, delta: unknown, finish: string | null, logprobs?: readonly TokenLogprobs[]) => ({
    index,
    delta,
    logprobs: request.logprobs && logprobs?.length ? { content: logprobsBody(logprobs), refusal: null } : null,
    finish_reason: finish,
  })
  const begun = streams.map(() => false)
  for await (const { index, value: event } of mergeStreams(streams)) {
    if (!begun[index]) {
      begun[index] = true
      yield chunk([choice(index, { role: 'assistant', content: '', refusal: null }, null)])
    }
    if (event.type === 'usage') usages[index] = event
    else if (event.type === 'promptProgress') yield chunk([], null, { prompt_progress: progressBody(event) })
    else if (event.type === 'text') yield chunk([choice(index, { content: event.text }, null, event.logprobs)])
    else if (event.type === 'thinking') {
      yield chunk([choice(index, { reasoning_content: event.text }, null, event.logprobs)])
    } else if (event.type === 'end') yield chunk([choice(index, {}, event.reason)])
    else {
      // A dropped call is left without an end: the API has no way to withdraw it.
      const call = callDelta(event, event.type === 'toolCallStart' ? calls[index]++ : calls[index] - 1)
      if (call !== null) yield chunk([choice(index, { tool_calls: [call] }, null, event.logprobs)])
    }
  }
  const timings = request.return_progress ? { timings: timingsBody(usages[0]) } : {}
  if (withUsage) yield chunk([], usageBody(usages), timings)
  yield { data: '[DONE]' }
}

/** What an event adds to a call of a streamed answer; null: nothing. */
function callDelta(event: ToolCallEvent, index: number): object | null {
  if (event.type === 'toolCallStart') return { index, ...toolCallBody({ ...event, arguments: '' }) }
  return event.type === 'toolCallDelta' ? { index, function: { arguments: event.arguments } } : null
}

function toolCallBody(call: { id: string; name: string; arguments: string }) {
  return { id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments } }
}

/**
 * How far the prompt has been read, in llama-server's words for `return_progress`. Cached tokens
 * count as read.
 */
function progressBody({ done, total, cached, ms }: PromptProgress): object {
  return { total: total + cached, cache: cached, processed: done + cached, time_ms: Math.round(ms) }
}

/** What an answer took by the server's clock, in llama-server's words. */
function timingsBody(usage: Usage): object {
  return {
    cache_n: usage.cachedTokens,
    prompt_n: usage.newTokens,
    prompt_ms: usage.promptSeconds * 1000,
    predicted_n: usage.answerTokens,
    predicted_ms: usage.answerSeconds * 1000,
  }
}
