// What a session is asked and what it answers: options of a chat or completion, and the events that stream back.
import type { TokenConstraint } from '../grammar/constraint.js'
import type { AnswerRequest, ResponseFormat, ToolChoice } from '../grammar/constraintFactory.js'
import type { SamplerOptions } from '../text/sampling/sampler.js'
import type { ChatRequest } from '../text/template/chatRenderer.js'
import type { ChatMessage, ToolDefinition } from '../text/template/messages.js'
import type { TemplateVariables } from '../text/template/templateEngine.js'

/** Makes the constraint of an answer; null where the request needs none. `signal`: nobody waits for it any more. */
export type OpenConstraint = (request: AnswerRequest, signal?: AbortSignal) => Promise<TokenConstraint | null>

/** Anything left out is what the model's generation_config.json says. */
export interface AnswerOptions extends SamplerOptions {
  /** At most so many tokens; without it, until the context is full. */
  readonly maxTokens?: number
  /** More than the context has room for means until it is full; else that is an error. */
  readonly fitContext?: boolean
  /** Thinking is closed after so many tokens. */
  readonly thinkingBudget?: number
  readonly stop?: string | readonly string[]
  /** How likely each token was; a number asks for so many alternatives too. */
  readonly logprobs?: boolean | number
  /** Guarantees what the answer looks like. */
  readonly responseFormat?: ResponseFormat
  /** Makes the constraint of the answer, in place of the model's own way to do so. */
  readonly openConstraint?: OpenConstraint
  /** Only requests of the same scope share states of prompts. Without it, all of the session that have none. */
  readonly cacheScope?: string
  readonly signal?: AbortSignal
  /** Prompt tokens evaluated so far, of those that are not in the cache; told before the first of them, too. */
  readonly onPromptProgress?: (done: number, total: number, cached: number) => void
}

export interface ChatOptions extends AnswerOptions {
  readonly messages: readonly ChatMessage[]
  readonly tools?: readonly ToolDefinition[]
  /** 'none' hides the tools from the model; 'required' and a name force calls. Default 'auto'. */
  readonly toolChoice?: ToolChoice
  /** More than one call in an answer. Default true. */
  readonly parallelToolCalls?: boolean
  /** Let the model think before it answers; a word says how much, where the model knows that. */
  readonly thinking?: ChatRequest['thinking']
  /**
   * The beginning of the answer, which the events go on from. Not with a guaranteed form; with thinking only where that is given,
   * whole, by `thinkingPrefill`.
   */
  readonly prefill?: string
  /** The beginning of the answer's thinking, which the events go on from; the model thinks, whatever `thinking` says. */
  readonly thinkingPrefill?: string
  /** More variables for the chat template. */
  readonly templateVariables?: TemplateVariables
}

export interface CompleteOptions extends AnswerOptions {
  /** Text, in which control tokens count as such, or token ids. */
  readonly prompt: string | readonly number[]
}

export interface TokenInfo {
  readonly token: number
  readonly text: string
  readonly bytes: Uint8Array
  readonly logprob: number
}

export interface TokenLogprobs extends TokenInfo {
  readonly top: readonly TokenInfo[] // best first
}

/** Of a request so far; the last one of a stream is final. */
export interface Usage {
  readonly promptTokens: number // cachedTokens + newTokens
  readonly cachedTokens: number // taken from the cache
  readonly newTokens: number // evaluated
  readonly cacheWrittenTokens: number // of the new ones, those that a later request can take from the cache
  readonly answerTokens: number
  readonly thinkingTokens: number // of answerTokens
  /** Tokens that were guessed ahead; where there were such. */
  readonly drafts?: { readonly accepted: number; readonly rejected: number }
  readonly promptSeconds: number
  readonly answerSeconds: number
}

export type EndReason = 'stop' | 'length' | 'tool_calls'

export type SessionEvent =
  | { readonly type: 'text'; readonly text: string; readonly logprobs?: readonly TokenLogprobs[] }
  | { readonly type: 'thinking'; readonly text: string; readonly logprobs?: readonly TokenLogprobs[] }
  | (ToolCallEvent & { readonly logprobs?: readonly TokenLogprobs[] })
  | ({ readonly type: 'usage' } & Usage)
  | {
      readonly type: 'end'
      readonly reason: EndReason
      readonly stopSequence: string | null // the one that was met
    }

/**
 * A call as it is written: it begins, its arguments grow, it is whole. `toolCall` says all of it once more; who does not
 * stream needs nothing else. A call that was begun and is dropped was none, or was cut off; if it was none, its text follows as text.
 */
export type ToolCallEvent =
  | { readonly type: 'toolCallStart'; readonly id: string; readonly name: string }
  | { readonly type: 'toolCallDelta'; readonly id: string; readonly arguments: string } // what they grow by
  | { readonly type: 'toolCallDropped'; readonly id: string }
  | ({ readonly type: 'toolCall' } & ToolCall)

/** The same in answers and, as `toolCalls`, in messages. */
export interface ToolCall {
  readonly id: string
  readonly name: string
  readonly arguments: string // JSON text of an object
}

/** A whole answer. */
export interface Answer {
  readonly text: string
  readonly thinking: string
  readonly toolCalls: readonly ToolCall[]
  readonly usage: Usage
  readonly reason: EndReason
  readonly stopSequence: string | null
}
