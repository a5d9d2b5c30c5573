// What the options of an answer come to: settings of the sampler, limits, a constraint. What is wrong with them is told before anything
// is evaluated.
import { ContextLimitError, OptionError } from '../base/errors.js'
import { checkRequest } from '../grammar/checkRequest.js'
import type { TokenConstraint } from '../grammar/constraint.js'
import type { AnswerRequest } from '../grammar/constraintFactory.js'
import type { SamplerOptions } from '../text/sampling/sampler.js'
import type { AnswerOptions, OpenConstraint } from './events.js'
import type { Prompt } from './prompt.js'
import { promptTooLong } from './promptBuilder.js'

/** `defaults`: what the model's files ask for. */
export function samplerOptions(options: AnswerOptions, defaults: SamplerOptions): SamplerOptions {
  return {
    temperature: options.temperature ?? defaults.temperature,
    topK: options.topK ?? defaults.topK,
    topP: options.topP ?? defaults.topP,
    minP: options.minP ?? defaults.minP,
    repetitionPenalty: options.repetitionPenalty ?? defaults.repetitionPenalty,
    presencePenalty: options.presencePenalty,
    frequencyPenalty: options.frequencyPenalty,
    logitBias: options.logitBias,
    seed: options.seed,
  }
}

/** Tells before anything is evaluated that the context is too short. */
export function answerLimit(
  { ids }: Prompt,
  contextLength: number,
  { maxTokens, fitContext = false }: AnswerOptions,
): number {
  const room = contextLength - ids.length
  if (room < 1) throw promptTooLong(ids.length, contextLength)
  if (maxTokens === undefined) return room
  if (!Number.isInteger(maxTokens) || maxTokens < 0) throw new OptionError('maxTokens', maxTokens, 'a whole number')
  if (maxTokens > room && fitContext) return room
  if (maxTokens > room) {
    const wanted = { promptTokens: ids.length, answerTokens: maxTokens }
    throw new ContextLimitError(ids.length + maxTokens, contextLength, wanted)
  }
  return maxTokens
}

/** What is asked for and cannot be guaranteed is refused: an answer that ignores it would be worse. */
export async function constraintFor(
  wanted: AnswerRequest,
  open: OpenConstraint | null,
  signal: AbortSignal,
): Promise<TokenConstraint | null> {
  checkRequest(wanted)
  if (open !== null) return await open(wanted, signal)
  const { responseFormat, toolChoice } = wanted
  const way = 'a way to constrain answers, which is missing here'
  if (responseFormat !== undefined && responseFormat.type !== 'text') {
    throw new OptionError('responseFormat', responseFormat.type, way)
  }
  if (toolChoice === 'required' || typeof toolChoice === 'object') {
    throw new OptionError('toolChoice', JSON.stringify(toolChoice), way)
  }
  return null
}

export function logprobCount(logprobs: boolean | number | undefined): number | null {
  if (logprobs === undefined || logprobs === false) return null
  if (logprobs === true) return 0
  if (!Number.isInteger(logprobs) || logprobs < 0) throw new OptionError('logprobs', logprobs, 'a whole number')
  return logprobs
}

export function stopList(stop: string | readonly string[] | undefined): readonly string[] {
  return typeof stop === 'string' ? [stop] : (stop ?? [])
}
