// One answer, token by token: sample, detokenize, split off thinking, stop where it should stop. Yields pieces of text as
// they become certain and ends with what happened. Owns nothing: context and sampler are the caller's.
import type { Context } from '../engine/context.js'
import type { Sampler } from '../text/sampler.js'
import { type SplitEvent, Splitter, type SplitterOptions } from '../text/splitter.js'
import type { Tokenizer } from '../text/tokenizer.js'

export interface GenerateRequest {
  readonly context: Context
  readonly contextLength: number
  readonly tokenizer: Tokenizer
  readonly sampler: Sampler
  readonly eosTokenIds: readonly number[]
  readonly prompt: readonly number[]
  readonly splitter: SplitterOptions
  readonly maxTokens?: number
  readonly signal: AbortSignal
  readonly onPromptProgress?: (done: number, total: number) => void
}

export interface Generated {
  readonly ended: 'eos' | 'stop' | 'maxTokens' | 'context'
  readonly promptTokens: number
  readonly answerTokens: number
  readonly promptSeconds: number
  readonly answerSeconds: number
}

export async function* generate(request: GenerateRequest): AsyncGenerator<SplitEvent, Generated> {
  const { context, tokenizer, sampler, prompt, signal } = request
  const splitter = new Splitter(request.splitter)
  const detokenizer = tokenizer.createDetokenizer({ skipSpecial: true })
  const eos = new Set(request.eosTokenIds)
  const limit = Math.min(request.maxTokens ?? Number.POSITIVE_INFINITY, request.contextLength - prompt.length)
  sampler.seePrompt(prompt)

  const started = performance.now()
  let logits = await context.evalPrompt(prompt, { signal, onProgress: request.onPromptProgress })
  const answering = performance.now()
  let answerTokens = 0
  let ended: Generated['ended'] = limit === request.maxTokens ? 'maxTokens' : 'context'
  while (answerTokens < limit && logits !== null) {
    const token = sampler.sample(logits)
    if (eos.has(token)) {
      ended = 'eos'
      break
    }
    answerTokens++
    yield* splitter.push(detokenizer.push(token))
    if (splitter.stopped !== null) {
      ended = 'stop'
      break
    }
    if (answerTokens < limit) logits = await context.evalToken(token, { signal })
  }
  const finished = performance.now()
  yield* splitter.push(detokenizer.end())
  yield* splitter.end()
  return {
    ended,
    promptTokens: prompt.length,
    answerTokens,
    promptSeconds: (answering - started) / 1000,
    answerSeconds: (finished - answering) / 1000,
  }
}
