// A feed-forward block (a routed expert or the shared one): down(silu(gate(x)) * up(x)).
import { silu } from './activations.js'
import { matVec } from './matVec.js'
import type { Weights } from './weights.js'

export interface ExpertWeights {
  readonly gate: Weights // [intermediate, hidden]
  readonly up: Weights // [intermediate, hidden]
  readonly down: Weights // [hidden, intermediate]
}

/** x [tokens, hidden] -> [tokens, hidden] */
export function expert(weights: ExpertWeights, x: Float32Array): Float32Array {
  return matVec(weights.down, swiGlu(matVec(weights.gate, x), matVec(weights.up, x)))
}

/** silu(gate) * up */
export function swiGlu(gate: Float32Array, up: Float32Array): Float32Array {
  return gate.map((value, i) => silu(value) * up[i])
}
