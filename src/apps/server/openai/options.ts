// From the fields of an OpenAI request to the options of a session.
import type { ChatOptions, ResponseFormat, ToolChoice } from '../../../index.js'
import type { AnswerOptions } from '../../../internal.js'
import { thinkingByEffort } from '../answerPrefix.js'
import { ApiError } from '../apiError.js'
import type { ChatRequest, CompletionRequest } from './chatSchema.js'

type Sampling = Pick<
  ChatRequest,
  | 'temperature'
  | 'top_p'
  | 'top_k'
  | 'min_p'
  | 'presence_penalty'
  | 'frequency_penalty'
  | 'repetition_penalty'
  | 'logit_bias'
  | 'seed'
>

export function samplingOptions(request: Sampling, vocabSize: number): AnswerOptions {
  return {
    temperature: request.temperature ?? undefined,
    topP: request.top_p ?? undefined,
    topK: request.top_k ?? undefined,
    minP: request.min_p ?? undefined,
    presencePenalty: request.presence_penalty ?? undefined,
    frequencyPenalty: request.frequency_penalty ?? undefined,
    repetitionPenalty: request.repetition_penalty ?? undefined,
    logitBias: logitBias(request.logit_bias, vocabSize),
    seed: request.seed ?? undefined,
  }
}

function logitBias(bias: Sampling['logit_bias'], vocabSize: number): ReadonlyMap<number, number> | undefined {
  if (!bias) return undefined
  const map = new Map<number, number>()
  for (const [key, value] of Object.entries(bias)) {
    const token = Number(key)
    if (token >= vocabSize) {
      throw new ApiError('invalid_request', `logit_bias: token ${key} is outside the vocabulary of ${vocabSize}`, {
        param: 'logit_bias',
      })
    }
    map.set(token, value)
  }
  return map
}

export function stopOption(stop: ChatRequest['stop']): readonly string[] | undefined {
  if (stop === null || stop === undefined) return undefined
  return typeof stop === 'string' ? [stop] : stop
}

export function responseFormat(
  request: Pick<CompletionRequest, 'response_format' | 'grammar'>,
): ResponseFormat | undefined {
  if (request.grammar) return { type: 'grammar', grammar: request.grammar }
  const format = request.response_format
  if (!format) return undefined
  return format.type === 'json_schema' ? { type: 'json_schema', schema: format.json_schema.schema ?? {} } : format
}

export function toolChoice(choice: ChatRequest['tool_choice']): ToolChoice | undefined {
  if (!choice) return undefined
  return typeof choice === 'string' ? choice : { name: choice.function.name }
}

/** Undefined: up to the end of the context. */
export function tokenLimit(...asked: readonly (number | null | undefined)[]): number | undefined {
  const limit = asked.find(count => count != null)
  return limit == null || limit === -1 ? undefined : limit
}

/** Thinking as clients of different servers ask for it. */
export function thinkingOption(
  request: Pick<ChatRequest, 'reasoning_effort' | 'chat_template_kwargs'>,
): ChatOptions['thinking'] {
  const asked = request.chat_template_kwargs?.enable_thinking
  if (typeof asked === 'boolean') return asked
  if (request.reasoning_effort === null || request.reasoning_effort === undefined) return undefined
  return thinkingByEffort(request.reasoning_effort)
}
