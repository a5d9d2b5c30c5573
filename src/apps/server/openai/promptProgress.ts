// What `return_progress` adds to a streamed answer, as llama-server calls it: how far the prompt has been read, and what the
// answer took.
import type { Usage } from '../../../index.js'
import type { PromptProgress } from '../../../serving.js'

/** Of all tokens, those of the cache count as read. */
export function progressBody({ done, total, cached, ms }: PromptProgress): object {
  return { total: total + cached, cache: cached, processed: done + cached, time_ms: Math.round(ms) }
}

/** What an answer took by the server's own clock. */
export function timingsBody(usage: Usage): object {
  return {
    cache_n: usage.cachedTokens,
    prompt_n: usage.newTokens,
    prompt_ms: usage.promptSeconds * 1000,
    predicted_n: usage.answerTokens,
    predicted_ms: usage.answerSeconds * 1000,
  }
}
