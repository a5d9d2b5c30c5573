// Pieces of answers that several OpenAI endpoints share: usage, token log-probabilities, errors.
import type { TokenInfo, TokenLogprobs, Usage } from '../../../index.js'
import { type ApiError, type ApiErrorKind, isAbort, toApiError } from '../apiError.js'
import type { ServerSentEvent } from '../eventSource.js'
import { shortMessage } from '../logLine.js'

export function usageBody(usages: readonly Usage[]) {
  const sum = (read: (usage: Usage) => number) => usages.reduce((total, usage) => total + read(usage), 0)
  const prompt = usages[0]?.promptTokens ?? 0 // several answers share one prompt
  const answer = sum(usage => usage.answerTokens)
  return {
    prompt_tokens: prompt,
    completion_tokens: answer,
    total_tokens: prompt + answer,
    prompt_tokens_details: { cached_tokens: usages[0]?.cachedTokens ?? 0, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: sum(usage => usage.thinkingTokens),
      audio_tokens: 0,
      accepted_prediction_tokens: sum(usage => usage.drafts?.accepted ?? 0),
      rejected_prediction_tokens: sum(usage => usage.drafts?.rejected ?? 0),
    },
  }
}

/** A text, token ids, or a list of either. */
export function promptList(prompt: string | readonly string[] | number[] | readonly number[][]): (string | number[])[] {
  if (typeof prompt === 'string') return [prompt]
  if (typeof prompt[0] === 'number') return [prompt as number[]]
  return [...(prompt as readonly (string | number[])[])]
}

function tokenBody({ text, logprob, bytes }: TokenInfo) {
  return { token: text, logprob, bytes: Array.from(bytes) }
}

export function logprobsBody(tokens: readonly TokenLogprobs[]) {
  return tokens.map(tokenLogprobsBody)
}

export function tokenLogprobsBody(token: TokenLogprobs) {
  return { ...tokenBody(token), top_logprobs: token.top.map(tokenBody) }
}

const TYPES: Record<ApiErrorKind, string> = {
  invalid_request: 'invalid_request_error',
  authentication: 'authentication_error',
  permission: 'permission_error',
  not_found: 'not_found_error',
  too_large: 'invalid_request_error',
  rate_limit: 'rate_limit_error',
  timeout: 'timeout_error',
  server: 'server_error',
  overloaded: 'server_error',
}

export function errorBody(error: ApiError) {
  const { param = null, code = null } = error.details
  return { error: { message: shortMessage(error.message), type: TYPES[error.kind], param, code } }
}

/** An error after the headers. */
export function errorEvent(error: unknown): ServerSentEvent | null {
  return isAbort(error) ? null : { data: JSON.stringify(errorBody(toApiError(error))) }
}
