// A feed-forward block (a routed expert, the shared one, a dense layer's): down(act(gate(x), up(x))).

import type { Activation } from '../../model/layers.js'
import { addBias } from '../activation/addBias.js'
import { swiGlu } from '../activation/swiGlu.js'
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

/** x [tokens, hidden] -> [tokens, hidden] */
export function expert(weights: ExpertWeights, x: Float32Array, activation?: Activation): Float32Array {
  const gate = addBias(matVec(weights.gate, x), weights.gateBias ?? null)
  const up = addBias(matVec(weights.up, x), weights.upBias ?? null)
  return addBias(matVec(weights.down, swiGlu(gate, up, activation)), weights.downBias ?? null)
}
