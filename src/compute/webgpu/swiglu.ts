// silu(gate) * up as float32 rows.
import type { GpuContext } from './gpuContext.js'
import { uniformBuffer } from './kernel.js'
import type { Op } from './op.js'

export async function swigluOp(
  gpu: GpuContext,
  gateUp: GPUBuffer,
  out: GPUBuffer,
  width: number,
  rowsPerToken: number,
): Promise<Op> {
  const kernel = await gpu.kernels.get('swiglu')
  const group = kernel.bind([uniformBuffer(gpu.device, [width, 0, 0, 0], 'swiglu shape'), gateUp, out])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, Math.ceil(width / 64), tokens * rowsPerToken)
}
