// A feed-forward block (expert), and the sum of those that a token was routed to (combine).
import type { Activation } from '../../model/layers.js'
import { addBias, swiGlu } from '../activation/reference.js'
import { matVec } from '../matmul/reference.js'
import type { Weights } from '../matmul/storedWeights.js'

export interface ExpertWeights {
  readonly gate: Weights // [intermediate, hidden]
  readonly up: Weights // [intermediate, hidden]
  readonly down: Weights // [hidden, intermediate]
  readonly gateBias?: Float32Array | null // [intermediate]
  readonly upBias?: Float32Array | null // [intermediate]
  readonly downBias?: Float32Array | null // [hidden]
}

/**
 * A routed expert, the shared one, or a dense layer's: down(act(gate(x), up(x))).
 * x [tokens, hidden] -> [tokens, hidden]
 */
export function expert(weights: ExpertWeights, x: Float32Array, activation?: Activation): Float32Array {
  const gate = addBias(matVec(weights.gate, x), weights.gateBias ?? null)
  const up = addBias(matVec(weights.up, x), weights.upBias ?? null)
  return addBias(matVec(weights.down, swiGlu(gate, up, activation)), weights.downBias ?? null)
}

/**
 * The MoE block's output: Σ w_e·expert_e(x) in the router's order, plus the shared expert, if any.
 * routed [tokens, K, hidden], weights [tokens, K], shared [tokens, hidden], sharedGate [tokens] -> [tokens, hidden].
 * Without a gate the shared expert counts once.
 */
export function combine(
  routed: Float32Array,
  weights: Float32Array,
  shared: Float32Array | null,
  sharedGate: Float32Array | null,
  tokens: number,
): Float32Array {
  const k = weights.length / tokens
  const hidden = routed.length / weights.length
  const out = new Float32Array(tokens * hidden)
  for (let t = 0; t < tokens; t++) {
    const gate = sharedGate === null ? 1 : sharedGate[t]
    for (let i = 0; i < hidden; i++) {
      let sum = 0
      for (let rank = 0; rank < k; rank++) sum += weights[t * k + rank] * routed[(t * k + rank) * hidden + i]
      out[t * hidden + i] = shared === null ? sum : sum + gate * shared[t * hidden + i]
    }
  }
  return out
}
