// The gated delta rule, token by token, and its gates. State of a value head: S[valueDim][keyDim].
//   S *= decay;  mem[v] = Σk S[v][k]·k[k];  d[v] = (v[v] - mem[v])·beta;  S[v][k] += d[v]·k[k];  o[v] = Σk S[v][k]·q[k]
import { sigmoid, softplus } from '../activation/reference.js'

interface GatedDeltaShape {
  readonly keyHeads: number
  readonly valueHeads: number
  readonly keyDim: number
  readonly valueDim: number
}

interface GatedDeltaInput {
  readonly q: Float32Array // [tokens, keyHeads, keyDim], normed and scaled
  readonly k: Float32Array // [tokens, keyHeads, keyDim], normed
  readonly v: Float32Array // [tokens, valueHeads, valueDim]
  readonly decay: Float32Array // [tokens, valueHeads]
  readonly beta: Float32Array // [tokens, valueHeads]
}

/** Updates `state` [valueHeads, valueDim, keyDim] in place -> [tokens, valueHeads, valueDim] */
export function gatedDelta(input: GatedDeltaInput, state: Float32Array, shape: GatedDeltaShape): Float32Array {
  const { q, k, v, decay, beta } = input
  const { keyHeads, valueHeads, keyDim, valueDim } = shape
  const tokens = v.length / (valueHeads * valueDim)
  const out = new Float32Array(v.length)
  for (let t = 0; t < tokens; t++) {
    for (let head = 0; head < valueHeads; head++) {
      const keyHead = Math.floor(head / (valueHeads / keyHeads))
      const keyStart = (t * keyHeads + keyHead) * keyDim
      const gate = t * valueHeads + head
      for (let row = 0; row < valueDim; row++) {
        const s = (head * valueDim + row) * keyDim
        let memory = 0
        for (let i = 0; i < keyDim; i++) {
          state[s + i] *= decay[gate]
          memory += state[s + i] * k[keyStart + i]
        }
        const delta = (v[gate * valueDim + row] - memory) * beta[gate]
        let o = 0
        for (let i = 0; i < keyDim; i++) {
          state[s + i] += delta * k[keyStart + i]
          o += state[s + i] * q[keyStart + i]
        }
        out[gate * valueDim + row] = o
      }
    }
  }
  return out
}

interface DeltaGates {
  readonly decay: Float32Array // [tokens, valueHeads], exp(-exp(A_log) * softplus(a + dt_bias))
  readonly beta: Float32Array // [tokens, valueHeads], sigmoid(b)
}

/**
 * Two numbers per value head: how much of the state stays, how much of the new is added.
 * a and b [tokens, valueHeads], aLog and dtBias [valueHeads]
 */
export function deltaGates(a: Float32Array, b: Float32Array, aLog: Float32Array, dtBias: Float32Array): DeltaGates {
  const heads = aLog.length
  const decay = a.map((value, i) => Math.exp(-Math.exp(aLog[i % heads]) * softplus(value + dtBias[i % heads])))
  return { decay, beta: b.map(sigmoid) }
}
