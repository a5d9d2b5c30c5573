// hidden += rows that the host has computed.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import type { Op } from '../../gpu/device/op.js'

const WG = 64

/** rows, hidden: [tokens, width] */
export async function addRowsOp(gpu: GpuContext, rows: GPUBuffer, hidden: GPUBuffer, width: number): Promise<Op> {
  const kernel = await gpu.kernels.get('addRows', { WG })
  const group = kernel.bind([uniformBuffer(gpu.device, [width, 0, 0, 0], 'addRows shape'), rows, hidden])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, Math.ceil(width / WG), tokens)
}
