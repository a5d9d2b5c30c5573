// hidden += delta, then the RMS norm of hidden into another buffer.
import { type GpuContext, workgroupFor } from './gpuContext.js'
import { uniformBuffer } from './kernel.js'
import type { Op } from './op.js'

export interface AddNormBuffers {
  readonly weight: GPUBuffer // [width]
  readonly delta: GPUBuffer | null // [tokens, width]
  readonly hidden: GPUBuffer // [tokens, width]
  readonly out: GPUBuffer // [tokens, width]
}

export async function addNormOp(gpu: GpuContext, buffers: AddNormBuffers, width: number, eps: number): Promise<Op> {
  const kernel = await gpu.kernels.get('addNorm', {
    ADD: buffers.delta !== null,
    EPS: eps,
    WG: workgroupFor(gpu, width / 4, 256),
  })
  const shape = uniformBuffer(gpu.device, [width, 0, 0, 0], 'addNorm shape')
  const group = kernel.bind([shape, buffers.weight, buffers.delta ?? buffers.weight, buffers.hidden, buffers.out])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, tokens)
}
