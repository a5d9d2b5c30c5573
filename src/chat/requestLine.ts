// The one line that is logged per request.
import type { Usage } from './events.js'

export function requestLine(usage: Usage, missed: string, outcome: string): string {
  const { promptTokens, cachedTokens, newTokens, answerTokens, promptSeconds, answerSeconds, drafts } = usage
  const parts = [
    `prompt ${promptTokens} = ${cachedTokens} cached + ${newTokens} new${missed === '' ? '' : ` (${missed})`}`,
    `prefill ${rate(newTokens, promptSeconds)}`,
    `answer ${answerTokens}, decode ${rate(answerTokens, answerSeconds)}`,
    ...(drafts === undefined ? [] : [`${drafts.accepted} of ${drafts.accepted + drafts.rejected} guesses right`]),
    outcome,
  ]
  return parts.join(' · ')
}

/** The same for vectors. */
export function embeddingLine(inputs: number, tokens: number, seconds: number): string {
  return `${inputs} ${inputs === 1 ? 'embedding' : 'embeddings'}, ${tokens} tokens · ${rate(tokens, seconds)}`
}

function rate(tokens: number, seconds: number): string {
  const perSecond = tokens / Math.max(seconds, 1e-4)
  return `${perSecond < 100 ? perSecond.toPrecision(3) : Math.round(perSecond)} tok/s`
}
