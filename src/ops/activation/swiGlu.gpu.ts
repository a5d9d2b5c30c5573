// An expert's activation as float32 rows.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import type { Op } from '../../gpu/device/op.js'
import type { ShaderConstants } from '../../gpu/device/shaderSource.js'
import type { Activation } from '../../model/layers.js'

export async function swiGluOp(
  gpu: GpuContext,
  gateUp: GPUBuffer,
  out: GPUBuffer,
  width: number,
  rowsPerToken: number,
  activation: Activation,
): Promise<Op> {
  const kernel = await gpu.kernels.get('swiGlu', gluConstants(activation))
  const group = kernel.bind([uniformBuffer(gpu.device, [width, 0, 0, 0], 'swiGlu shape'), gateUp, out])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, Math.ceil(width / 64), tokens * rowsPerToken)
}

/** Shader constants of glu.wgsl. */
export function gluConstants(activation: Activation): ShaderConstants {
  return activation.kind === 'silu' ? {} : { CLAMPED: true, LIMIT: activation.limit, ALPHA: activation.alpha }
}
