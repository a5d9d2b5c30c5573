// The activation between an expert's gate and up, and its down product.
import type { Activation } from '../../model/layers.js'
import { sigmoid, silu } from './reference.js'

const SILU: Activation = { kind: 'silu' }

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
