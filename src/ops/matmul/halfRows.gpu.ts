// Rows of activations to half floats, as products on matrix units take them.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import type { Op } from '../../gpu/device/op.js'
import type { ActivationBuffers } from '../../gpu/memory/activationBuffers.js'
import type { Activation } from '../../model/layers.js'
import { gluConstants } from '../activation/swiGlu.gpu.js'

export async function halfRowsOp(gpu: GpuContext, { values, packed }: ActivationBuffers, width: number): Promise<Op> {
  const kernel = await gpu.kernels.get('halfRows')
  const group = kernel.bind([shapeOf(gpu, width), values, packed])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, Math.ceil(width / 8 / 64), tokens)
}

/** The activation of rows [gate | up] as half floats. `listed`: as many rows as the list of pairs in `groups` has, at most `rows`. */
export async function halfGluOp(
  gpu: GpuContext,
  gateUp: GPUBuffer,
  packed: GPUBuffer,
  width: number,
  activation: Activation,
  listed: { readonly groups: GPUBuffer; readonly rows: (tokens: number) => number } | null = null,
): Promise<Op> {
  const constants = { GLU: true, LISTED: listed !== null, ...gluConstants(activation) }
  const kernel = await gpu.kernels.get('halfRows', constants)
  const group = kernel.bind([shapeOf(gpu, width), gateUp, packed, ...(listed ? [listed.groups] : [])])
  return (recorder, { tokens }) =>
    recorder.dispatch(kernel, group, Math.ceil(width / 8 / 64), listed?.rows(tokens) ?? tokens)
}

function shapeOf(gpu: GpuContext, width: number): GPUBuffer {
  return uniformBuffer(gpu.device, [width / 8, 0, 0, 0], 'half rows')
}
