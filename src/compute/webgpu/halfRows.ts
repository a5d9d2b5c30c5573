// Rows of activations to half floats, as tensorMul takes them.
import type { ActivationBuffers } from './activationBuffers.js'
import type { GpuContext } from './gpuContext.js'
import { uniformBuffer } from './kernel.js'
import type { Op } from './op.js'

export async function halfRowsOp(gpu: GpuContext, { values, packed }: ActivationBuffers, width: number): Promise<Op> {
  const kernel = await gpu.kernels.get('halfRows')
  const shape = uniformBuffer(gpu.device, [width / 8, 0, 0, 0], 'half rows')
  const group = kernel.bind([shape, values, packed])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, Math.ceil(width / 8 / 64), tokens)
}
