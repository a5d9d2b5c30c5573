// Which experts a token goes to: softmax over all experts, the top K, weights renormalized to sum to 1. Ties: the lower
// index wins. A logit that is not finite makes all weights NaN, chosen or not: it must not vanish.
import { areFinite } from '../../model/floats.js'

export interface Routing {
  readonly indices: Int32Array // [tokens, K], highest probability first
  readonly weights: Float32Array // [tokens, K]
}

/** logits [tokens, experts] */
export function router(logits: Float32Array, experts: number, k: number): Routing {
  const tokens = logits.length / experts
  const indices = new Int32Array(tokens * k)
  const weights = new Float32Array(tokens * k)
  for (let t = 0; t < tokens; t++) {
    const row = logits.subarray(t * experts, (t + 1) * experts)
    // Renormalizing cancels the sum over all experts, so the chosen ones' exponentials are enough.
    const order = Array.from(row.keys()).sort((a, b) => row[b] - row[a] || a - b)
    let total = areFinite(row) ? 0 : Number.NaN
    for (let rank = 0; rank < k; rank++) {
      indices[t * k + rank] = order[rank]
      total += Math.exp(row[order[rank]] - row[order[0]])
    }
    for (let rank = 0; rank < k; rank++) {
      weights[t * k + rank] = Math.exp(row[order[rank]] - row[order[0]]) / total
    }
  }
  return { indices, weights }
}
