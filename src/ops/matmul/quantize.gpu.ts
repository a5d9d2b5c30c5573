// Packs activation rows to signed bytes in the order that weights of some bits unpack to.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import type { Op } from '../../gpu/device/op.js'
import type { ActivationBuffers } from '../../gpu/memory/activationBuffers.js'
import type { Activation } from '../../model/layers.js'
import { gluConstants } from '../activation/swiGlu.gpu.js'

/** rowsPerToken rows of `width` per token. With `glu`, packs the activation of rows [gate | up] instead. */
export async function quantizeOp(
  gpu: GpuContext,
  rows: ActivationBuffers,
  width: number,
  bits: number,
  rowsPerToken = 1,
  glu: { readonly gateUp: GPUBuffer; readonly activation: Activation } | null = null,
): Promise<Op> {
  const constants = glu === null ? {} : gluConstants(glu.activation)
  const kernel = await gpu.kernels.get('quantize', { ORDER: bits, SWIGLU: glu !== null, ...constants })
  const shape = uniformBuffer(gpu.device, [width / 32, 0, 0, 0], 'quantize shape')
  const group = kernel.bind([shape, glu?.gateUp ?? rows.values, rows.packed, rows.scales])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, Math.ceil(width / 256), tokens * rowsPerToken)
}
