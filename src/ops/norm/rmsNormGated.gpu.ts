// The gated norm of a linear layer's heads, in place, or as half floats where products on matrix units take it.
import { type GpuContext, workgroupFor } from '../../gpu/device/gpuContext.js'
import type { Op } from '../../gpu/device/op.js'
import type { ModelConfig } from '../../model/config.js'
import { linearColumns, linearConstants } from '../../model/linearShape.js'

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
