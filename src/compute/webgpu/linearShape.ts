// Shader constants that the kernels of a linear-attention layer share.
import type { ModelConfig } from '../../model/config.js'

/** Columns of the in-projections' output row: q | k | v, then z, b, a. */
export function linearColumns(config: ModelConfig): { z: number; b: number; a: number; stride: number } {
  const z = config.linearConvDim
  const b = z + config.linearValueHeads * config.linearValueDim
  const a = b + config.linearValueHeads
  return { z, b, a, stride: a + config.linearValueHeads }
}

/** Floats of one layer's state slot: conv inputs, padded to a quad, then the recurrent state. */
export function stateFloats(config: ModelConfig): { delta: number; size: number } {
  const delta = Math.ceil((3 * config.linearConvDim) / 4) * 4
  return { delta, size: delta + config.linearValueHeads * config.linearValueDim * config.linearKeyDim }
}

export function linearConstants(config: ModelConfig): Record<string, number> {
  return {
    KEY_HEADS: config.linearKeyHeads,
    VALUE_HEADS: config.linearValueHeads,
    KEY_DIM: config.linearKeyDim,
    VALUE_DIM: config.linearValueDim,
    IN_STRIDE: linearColumns(config).stride,
  }
}
