// The delta net's output norm: rms(o, w) * silu(z), row by row. Rows are the value heads of tokens.
import { silu } from '../activation/reference.js'
import { rmsNorm } from './reference.js'

/** o and z [rows, size], weight [size] -> [rows, size] */
export function rmsNormGated(o: Float32Array, z: Float32Array, weight: Float32Array, eps: number): Float32Array {
  const out = rmsNorm(o, weight, eps)
  for (let i = 0; i < out.length; i++) out[i] *= silu(z[i])
  return out
}
