// The gated norm of a linear layer's heads, in place.
import type { ModelConfig } from '../../model/config.js'
import { type GpuContext, workgroupFor } from './gpuContext.js'
import { linearColumns, linearConstants } from './linearShape.js'
import type { Op } from './op.js'

export async function rmsNormGatedOp(
  gpu: GpuContext,
  config: ModelConfig,
  weight: GPUBuffer,
  inputs: GPUBuffer,
  values: GPUBuffer,
): Promise<Op> {
  const constants = {
    ...linearConstants(config),
    Z_AT: linearColumns(config).z,
    EPS: config.rmsNormEps,
    WG: workgroupFor(gpu, config.linearValueDim, 128),
  }
  const kernel = await gpu.kernels.get('rmsNormGated', constants)
  const group = kernel.bind([weight, inputs, values])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, config.linearValueHeads, tokens)
}
