// hidden += delta, then the RMS norm of hidden into another buffer.
import { type GpuContext, workgroupFor } from './gpuContext.js'
import { uniformBuffer } from './kernel.js'
import type { Op } from './op.js'

export interface AddNormBuffers {
  readonly weight: GPUBuffer // [width]
  readonly delta: GPUBuffer | null // [tokens, width]
  readonly hidden: GPUBuffer // [tokens, width]
  readonly out: GPUBuffer // [tokens, width]
  readonly halves?: GPUBuffer | null // [tokens, width] half floats, where products on matrix units take them
}

export async function addNormOp(gpu: GpuContext, buffers: AddNormBuffers, width: number, eps: number): Promise<Op> {
  const { weight, delta, hidden, out, halves = null } = buffers
  const kernel = await gpu.kernels.get('addNorm', {
    ADD: delta !== null,
    EPS: eps,
    WG: workgroupFor(gpu, width / 4, 256),
    ...(halves && { HALVES: true }),
  })
  const shape = uniformBuffer(gpu.device, [width, 0, 0, 0], 'addNorm shape')
  const group = kernel.bind([shape, weight, delta ?? weight, hidden, out, halves])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, tokens)
}
