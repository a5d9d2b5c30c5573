// Puts the ranges of a split attention together.
import { type GpuContext, workgroupFor } from '../../gpu/device/gpuContext.js'
import type { Op } from '../../gpu/device/op.js'
import type { AttentionShape } from '../../model/layers.js'
import { attentionConstants, type HeadSizes } from './attentionShape.gpu.js'

export interface AttentionReduceBuffers {
  readonly parts: GPUBuffer // [tokens, heads, splits, headDim + 4]
  readonly inputs: GPUBuffer // [tokens, stride of attentionColumns]
  readonly sinks: GPUBuffer | null // [heads]
  readonly out: GPUBuffer // [tokens, heads * headDim]
}

export async function attentionReduceOp(
  gpu: GpuContext,
  config: HeadSizes,
  shape: AttentionShape,
  { parts, inputs, sinks, out }: AttentionReduceBuffers,
  splits: number,
): Promise<Op> {
  const kernel = await gpu.kernels.get('attentionReduce', {
    ...attentionConstants(config, shape),
    SPLITS: splits,
    WG: workgroupFor(gpu, Math.max(config.headDim / 4, gpu.tuning.WG), 256),
    GATED: shape.outputGate,
    SINKS: shape.sinks,
  })
  const group = kernel.bind([parts, out, shape.outputGate ? inputs : null, sinks])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, config.numHeads, tokens)
}
