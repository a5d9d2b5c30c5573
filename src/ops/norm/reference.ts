// Norms of rows, which are tokens or heads of tokens.
import { silu } from '../activation/reference.js'

/** rms(x, w) = x * rsqrt(mean(x²) + eps) * w. x [rows, size], weight [size] -> [rows, size] */
export function rmsNorm(x: Float32Array, weight: Float32Array, eps: number): Float32Array {
  const size = weight.length
  const out = new Float32Array(x.length)
  for (let start = 0; start < x.length; start += size) {
    let sum = 0
    for (let i = 0; i < size; i++) sum += x[start + i] * x[start + i]
    const scale = 1 / Math.sqrt(sum / size + eps)
    for (let i = 0; i < size; i++) out[start + i] = x[start + i] * scale * weight[i]
  }
  return out
}

/**
 * x * rsqrt(sum(x²) + 1e-6) * scale: query and key of the delta net, whose rows are key heads.
 * x [rows, size] -> [rows, size]
 */
export function l2Norm(x: Float32Array, size: number, scale = 1): Float32Array {
  const out = new Float32Array(x.length)
  for (let start = 0; start < x.length; start += size) {
    let sum = 0
    for (let i = 0; i < size; i++) sum += x[start + i] * x[start + i]
    const factor = scale / Math.sqrt(sum + 1e-6)
    for (let i = 0; i < size; i++) out[start + i] = x[start + i] * factor
  }
  return out
}

/**
 * The delta net's output norm: rms(o, w) * silu(z). Rows are the value heads of tokens.
 * o and z [rows, size], weight [size] -> [rows, size]
 */
export function rmsNormGated(o: Float32Array, z: Float32Array, weight: Float32Array, eps: number): Float32Array {
  const out = rmsNorm(o, weight, eps)
  for (let i = 0; i < out.length; i++) out[i] *= silu(z[i])
  return out
}
