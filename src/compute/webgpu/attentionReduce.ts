// Puts the ranges of a split attention together.
import type { AttentionShape } from '../../model/layers.js'
import type { AttentionBuffers } from './attention.js'
import { attentionConstants, type HeadSizes } from './attentionShape.js'
import { type GpuContext, workgroupFor } from './gpuContext.js'
import type { Op } from './op.js'

export async function attentionReduceOp(
  gpu: GpuContext,
  config: HeadSizes,
  shape: AttentionShape,
  { parts, inputs, sinks, out }: Pick<AttentionBuffers, 'parts' | 'inputs' | 'sinks' | 'out'>,
  splits: number,
): Promise<Op> {
  const kernel = await gpu.kernels.get('attentionReduce', {
    ...attentionConstants(config, shape),
    SPLITS: splits,
    WG: workgroupFor(gpu, config.headDim, 256),
    GATED: shape.outputGate,
    SINKS: shape.sinks,
  })
  const group = kernel.bind([parts, out, shape.outputGate ? inputs : null, sinks])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, config.numHeads, tokens)
}
