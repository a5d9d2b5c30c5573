// Whether rows hold nothing but finite values.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import type { Op } from '../../gpu/device/op.js'

/** rows [tokens, width] -> flag [0]: 1 where a value is not finite; as it was where all are. */
export async function finiteRowsOp(gpu: GpuContext, rows: GPUBuffer, width: number, flag: GPUBuffer): Promise<Op> {
  const kernel = await gpu.kernels.get('finiteRows')
  const group = kernel.bind([uniformBuffer(gpu.device, [width, 0, 0, 0], 'finite rows'), rows, flag])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, tokens)
}
