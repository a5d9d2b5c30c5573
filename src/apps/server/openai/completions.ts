// POST /v1/completions: raw text or token ids go on, without a chat template.
import type { Context } from 'hono'
import type { EventStream, Model, TokenLogprobs, Usage } from '../../../index.js'
import type { ServerSentEvent } from '../eventSource.js'
import { newId, nowSeconds } from '../ids.js'
import { jsonAnswer } from '../jsonAnswer.js'
import { mergeStreams } from '../mergeStreams.js'
import type { Metrics } from '../metrics.js'
import type { Env, Served } from '../middleware.js'
import { eventAnswer } from '../streamAnswer.js'
import type { CompletionRequest } from './chatSchema.js'
import { errorEvent, promptList, usageBody } from './chatShapes.js'
import { collectAnswer } from './collectAnswer.js'
import { responseFormat, samplingOptions, stopOption, tokenLimit } from './options.js'

const DEFAULT_MAX_TOKENS = 16 // as the API has it

/** Answers that a request asks for. */
export function completionCount(request: CompletionRequest): number {
  return promptList(request.prompt).length * (request.n ?? 1)
}

export async function completions(
  c: Context<Env<CompletionRequest>>,
  request: CompletionRequest,
  { model, session, modelId }: Served,
): Promise<Response> {
  const { active, server } = c.var
  const prompts = promptList(request.prompt)
  const perPrompt = request.n ?? 1
  const options = {
    ...samplingOptions(request, model.vocabSize),
    maxTokens: tokenLimit(request.max_tokens ?? DEFAULT_MAX_TOKENS),
    stop: stopOption(request.stop),
    logprobs: request.logprobs ?? undefined,
    responseFormat: responseFormat(request),
    cacheScope: active.scope,
    signal: active.signal,
  }
  const choices = prompts.flatMap(prompt => Array.from({ length: perPrompt }, (_, i) => ({ prompt, i })))
  const streams = choices.map(({ prompt, i }) =>
    session.complete({ ...options, prompt, seed: options.seed === undefined ? undefined : options.seed + i }),
  )
  // Called for prompts that were accepted: others are refused, and may be endless.
  const echo = (index: number) => (request.echo ? echoText(choices[index].prompt, model) : '')
  const head = {
    id: newId('cmpl-'),
    object: 'text_completion',
    created: nowSeconds(),
    model: request.model ?? modelId,
  }
  if (request.stream) {
    return await eventAnswer(c, streamChunks(streams, echo, request, head, server.metrics), errorEvent)
  }
  const answers = await Promise.all(streams.map(stream => collectAnswer(server.metrics.watch(stream))))
  const usages = answers.map(answer => answer.usage)
  return jsonAnswer(c, {
    ...head,
    choices: answers.map((answer, index) => ({
      index,
      text: echo(index) + answer.text,
      logprobs: request.logprobs == null ? null : logprobsBody(answer.logprobs),
      finish_reason: answer.finish,
    })),
    usage: sumUsage(usages, perPrompt),
  })
}

function echoText(prompt: string | number[], model: Model): string {
  return typeof prompt === 'string' ? prompt : (model.tokenizer?.decode(prompt) ?? '')
}

/** Prompts count once each, however many answers they got. */
function sumUsage(usages: readonly Usage[], perPrompt: number) {
  const prompts = usages.filter((_, i) => i % perPrompt === 0)
  const promptTokens = prompts.reduce((sum, usage) => sum + usage.promptTokens, 0)
  const cachedTokens = prompts.reduce((sum, usage) => sum + usage.cachedTokens, 0)
  const body = usageBody(usages)
  return {
    ...body,
    prompt_tokens: promptTokens,
    total_tokens: promptTokens + body.completion_tokens,
    prompt_tokens_details: { ...body.prompt_tokens_details, cached_tokens: cachedTokens },
  }
}

function logprobsBody(tokens: readonly TokenLogprobs[], offset = 0) {
  const offsets: number[] = []
  for (const token of tokens) {
    offsets.push(offset)
    offset += token.text.length
  }
  return {
    tokens: tokens.map(token => token.text),
    token_logprobs: tokens.map(token => token.logprob),
    top_logprobs: tokens.map(token => Object.fromEntries(token.top.map(other => [other.text, other.logprob]))),
    text_offset: offsets,
  }
}

async function* streamChunks(
  streams: readonly EventStream[],
  echo: (index: number) => string,
  request: CompletionRequest,
  head: object,
  metrics: Metrics,
): AsyncGenerator<ServerSentEvent> {
  const withUsage = request.stream_options?.include_usage === true
  const usages: Usage[] = []
  const offsets = streams.map(() => 0)
  const chunk = (choices: unknown[], usage: unknown = null): ServerSentEvent => ({
    data: JSON.stringify({ ...head, choices, ...(withUsage && { usage }) }),
  })
  const begun = streams.map(() => false)
  for await (const { index, value: event } of mergeStreams(streams.map(stream => metrics.watch(stream)))) {
    // Not before the prompt is evaluated: what is wrong with the request is told by its status and not by an event.
    const text = begun[index] ? '' : echo(index)
    begun[index] = true
    if (text !== '') yield chunk([{ index, text, logprobs: null, finish_reason: null }])
    if (event.type === 'usage') usages[index] = event
    else if (event.type === 'end') {
      yield chunk([{ index, text: '', logprobs: null, finish_reason: event.reason }])
    } else if (event.type === 'text') {
      const logprobs = event.logprobs?.length ? logprobsBody(event.logprobs, offsets[index]) : null
      offsets[index] += event.text.length
      yield chunk([{ index, text: event.text, logprobs, finish_reason: null }])
    }
  }
  if (withUsage) yield chunk([], sumUsage(usages, request.n ?? 1))
  yield { data: '[DONE]' }
}
