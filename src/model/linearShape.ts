// Shader constants that the kernels of a linear-attention layer share.
import type { ModelConfig } from './config.js'

/** Columns of the in-projections' output row: q | k | v, then z, b, a. */
export function linearColumns(config: ModelConfig): { z: number; b: number; a: number; stride: number } {
  const z = config.linearConvDim
  const b = z + config.linearValueHeads * config.linearValueDim
  const a = b + config.linearValueHeads
  return { z, b, a, stride: a + config.linearValueHeads }
}

/** Quads of one layer's state slot: per channel the last three conv inputs, then the recurrent state. */
export function stateQuads(config: ModelConfig): number {
  return config.linearConvDim + (config.linearValueHeads * config.linearValueDim * config.linearKeyDim) / 4
}

export function linearConstants(config: ModelConfig): Record<string, number> {
  return {
    KEY_HEADS: config.linearKeyHeads,
    VALUE_HEADS: config.linearValueHeads,
    KEY_DIM: config.linearKeyDim,
    VALUE_DIM: config.linearValueDim,
    IN_STRIDE: linearColumns(config).stride,
    STATE_QUADS: stateQuads(config),
  }
}
