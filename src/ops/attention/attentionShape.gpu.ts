// Shader constants that the kernels of a full-attention layer share.

import { PAGE_TOKENS } from '../../backends/kvPages.js'
import type { ShaderConstants } from '../../gpu/device/shaderSource.js'
import type { ModelConfig } from '../../model/config.js'
import type { AttentionShape } from '../../model/layers.js'

/** What the head sizes are read of. */
export type HeadSizes = Pick<ModelConfig, 'numHeads' | 'numKvHeads' | 'headDim'>

/** Columns of the in-projections' output row: per head query (and gate), then keys, then values. */
export function attentionColumns(
  config: HeadSizes,
  { outputGate }: Pick<AttentionShape, 'outputGate'>,
): { k: number; v: number; stride: number } {
  const k = config.numHeads * (outputGate ? 2 : 1) * config.headDim
  const v = k + config.numKvHeads * config.headDim
  return { k, v, stride: v + config.numKvHeads * config.headDim }
}

export function attentionConstants(config: HeadSizes, shape: AttentionShape): ShaderConstants {
  return {
    HEADS: config.numHeads,
    KV_HEADS: config.numKvHeads,
    HEAD_DIM: config.headDim,
    IN_STRIDE: attentionColumns(config, shape).stride,
    PAGE_TOKENS,
  }
}

/** What norms, rotation and the way into pages need beside that. */
export function inputConstants(
  config: HeadSizes & { readonly rmsNormEps: number },
  shape: AttentionShape,
): ShaderConstants {
  const columns = attentionColumns(config, shape)
  return {
    K_AT: columns.k,
    V_AT: columns.v,
    Q_STRIDE: (shape.outputGate ? 2 : 1) * config.headDim,
    QK_NORM: shape.qkNorm,
    ROTARY_DIM: shape.rope.dims,
    EPS: config.rmsNormEps,
  }
}

/** The largest share of a kv head's query heads whose queries fit into workgroup memory. */
export function headsPerTile(config: HeadSizes, queries: number): number {
  const perKv = config.numHeads / config.numKvHeads
  for (let heads = perKv; heads > 1; heads--) {
    if (perKv % heads === 0 && heads * queries * config.headDim * 4 <= 8192) return heads
  }
  return 1
}

/** Bytes of the parts that a split attention leaves for its reduction. */
export function attentionPartsBytes(config: HeadSizes, tokens: number, splits: number): number {
  return tokens * config.numHeads * splits * (config.headDim + 4) * 4
}
