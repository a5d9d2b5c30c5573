// Query and key norms, RoPE, and the K/V rows into their pages.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { type Op, rebound } from '../../gpu/device/op.js'
import type { KvPool } from '../../gpu/memory/kvPool.js'
import type { AttentionShape } from '../../model/layers.js'
import { attentionConstants, type HeadSizes, inputConstants } from './attentionShape.gpu.js'

export interface AttentionInputBuffers {
  readonly norms: GPUBuffer | null // [2, headDim]: query, key
  readonly tokenInfo: GPUBuffer
  readonly angles: GPUBuffer // [tokens, rope.dims / 2, 2]: cos, sin
  readonly inputs: GPUBuffer // [tokens, stride of attentionColumns]
  readonly queries: GPUBuffer // [tokens, heads * headDim]
}

export async function attentionInputOp(
  gpu: GpuContext,
  config: HeadSizes & { readonly rmsNormEps: number },
  shape: AttentionShape,
  buffers: AttentionInputBuffers,
  pool: KvPool,
  layer: number,
): Promise<Op> {
  const kernel = await gpu.kernels.get('attentionInput', {
    ...attentionConstants(config, shape),
    ...inputConstants(config, shape),
  })
  const { norms, tokenInfo, angles, inputs, queries } = buffers
  const group = rebound(pool, () =>
    kernel.bind([norms, tokenInfo, angles, inputs, pool.pageTable, queries, pool.buffer(layer)]),
  )
  return (recorder, { tokens }) => recorder.dispatch(kernel, group(), config.numHeads + config.numKvHeads, tokens)
}
