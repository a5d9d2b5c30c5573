// Scalar functions that several kernels share; and biases, gates and activations after products.
import type { Activation } from '../../model/layers.js'

export function sigmoid(x: number): number {
  return 1 / (1 + Math.exp(-x))
}

export function silu(x: number): number {
  return x / (1 + Math.exp(-x))
}

export function softplus(x: number): number {
  return x > 20 ? x : Math.log1p(Math.exp(x))
}

/** x [rows, width] plus a bias [width], in place; nothing where there is none. */
export function addBias(x: Float32Array, bias: Float32Array | null): Float32Array {
  if (bias !== null) for (let i = 0; i < x.length; i++) x[i] += bias[i % bias.length]
  return x
}

/** x * sigmoid(gate), the attention output's gate. */
export function sigmoidGate(x: Float32Array, gate: Float32Array): Float32Array {
  return x.map((value, i) => value * sigmoid(gate[i]))
}

const SILU: Activation = { kind: 'silu' }

/** The activation between an expert's gate and up, and its down product. */
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
