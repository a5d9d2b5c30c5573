// How probable a model finds a text, token by token.
import type { Model } from '#moeflux/chat/openModel.js'

/** Of each token but the first. */
export async function tokenLogprobs(model: Model, ids: readonly number[]): Promise<number[]> {
  const context = model.createContext()
  const { vocabSize } = model
  const out: number[] = []
  await context.evaluate(ids, {
    logits: 'all',
    onLogits: (start, logits) => {
      for (let i = 0; i < logits.length / vocabSize; i++) {
        const row = logits.subarray(i * vocabSize, (i + 1) * vocabSize)
        const next = ids[start + i + 1]
        if (next !== undefined) out.push(row[next] - logSumExp(row))
      }
    },
  })
  await context.close()
  return out
}

export function perplexity(logprobs: readonly number[]): number {
  return Math.exp(-logprobs.reduce((a, b) => a + b, 0) / logprobs.length)
}

function logSumExp(row: Float32Array): number {
  let max = Number.NEGATIVE_INFINITY
  for (const value of row) max = Math.max(max, value)
  let sum = 0
  for (const value of row) sum += Math.exp(value - max)
  return max + Math.log(sum)
}
