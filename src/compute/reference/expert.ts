// A feed-forward block (a routed expert, the shared one, a dense layer's): down(act(gate(x), up(x))).
import type { Activation } from '../../model/layers.js'
import { sigmoid, silu } from './activations.js'
import { addBias } from './addBias.js'
import { matVec } from './matVec.js'
import type { Weights } from './weights.js'

const SILU: Activation = { kind: 'silu' }

export interface ExpertWeights {
  readonly gate: Weights // [intermediate, hidden]
  readonly up: Weights // [intermediate, hidden]
  readonly down: Weights // [hidden, intermediate]
  readonly gateBias?: Float32Array | null // [intermediate]
  readonly upBias?: Float32Array | null // [intermediate]
  readonly downBias?: Float32Array | null // [hidden]
}

/** x [tokens, hidden] -> [tokens, hidden] */
export function expert(weights: ExpertWeights, x: Float32Array, activation: Activation = SILU): Float32Array {
  const gate = addBias(matVec(weights.gate, x), weights.gateBias ?? null)
  const up = addBias(matVec(weights.up, x), weights.upBias ?? null)
  return addBias(matVec(weights.down, swiGlu(gate, up, activation)), weights.downBias ?? null)
}

export function swiGlu(gate: Float32Array, up: Float32Array, activation: Activation = SILU): Float32Array {
  if (activation.kind === 'silu') return gate.map((value, i) => silu(value) * up[i])
  const { limit, alpha } = activation
  return gate.map((value, i) => {
    const g = Math.min(value, limit)
    const u = Math.min(Math.max(up[i], -limit), limit)
    const unsound = 0 * (value + up[i]) // what is not finite must not vanish in the clamp
    return (u + 1) * g * sigmoid(alpha * g) + unsound
  })
}
