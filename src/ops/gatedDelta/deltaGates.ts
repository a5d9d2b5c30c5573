// The two numbers per value head that steer the delta rule: how much of the state stays, how much of the new goes in.
import { sigmoid, softplus } from '../activation/reference.js'

export interface DeltaGates {
  readonly decay: Float32Array // [tokens, valueHeads], exp(-exp(A_log) * softplus(a + dt_bias))
  readonly beta: Float32Array // [tokens, valueHeads], sigmoid(b)
}

/** a and b [tokens, valueHeads], aLog and dtBias [valueHeads] */
export function deltaGates(a: Float32Array, b: Float32Array, aLog: Float32Array, dtBias: Float32Array): DeltaGates {
  const heads = aLog.length
  const decay = a.map((value, i) => Math.exp(-Math.exp(aLog[i % heads]) * softplus(value + dtBias[i % heads])))
  return { decay, beta: b.map(sigmoid) }
}
