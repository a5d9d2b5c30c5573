// Puts the ranges of a split attention together.
import type { ModelConfig } from '../../model/config.js'
import { attentionConstants } from './attentionShape.js'
import type { GpuContext } from './gpuContext.js'
import type { Op } from './op.js'

export async function attentionReduceOp(
  gpu: GpuContext,
  config: ModelConfig,
  parts: GPUBuffer,
  inputs: GPUBuffer,
  out: GPUBuffer,
  splits: number,
): Promise<Op> {
  const kernel = await gpu.kernels.get('attentionReduce', { ...attentionConstants(config), SPLITS: splits })
  const group = kernel.bind([parts, inputs, out])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, config.numHeads, tokens)
}
