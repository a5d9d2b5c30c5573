// The gated norm of a linear layer's heads, in place, or as half floats where products on matrix units take it.
import type { ModelConfig } from '../../model/config.js'
import { type GpuContext, workgroupFor } from './gpuContext.js'
import { linearColumns, linearConstants } from './linearShape.js'
import type { Op } from './op.js'

export async function rmsNormGatedOp(
  gpu: GpuContext,
  config: ModelConfig,
  weight: GPUBuffer,
  inputs: GPUBuffer,
  values: GPUBuffer, // [tokens, valueHeads, valueDim]
  halves: GPUBuffer | null = null,
): Promise<Op> {
  const constants = {
    ...linearConstants(config),
    Z_AT: linearColumns(config).z,
    EPS: config.rmsNormEps,
    WG: workgroupFor(gpu, config.linearValueDim, 128),
    ...(halves && { HALVES: true }),
  }
  const kernel = await gpu.kernels.get('rmsNormGated', constants)
  const group = kernel.bind([weight, inputs, values, halves])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, config.linearValueHeads, tokens)
}
