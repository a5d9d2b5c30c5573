// hidden += delta, then the RMS norm of hidden into another buffer.
import { type GpuContext, workgroupFor } from '../../gpu/device/gpuContext.js'
import type { Op } from '../../gpu/device/op.js'

export interface AddNormBuffers {
  readonly weight: GPUBuffer // [width]
  readonly delta: GPUBuffer | null // [tokens, width]
  readonly hidden: GPUBuffer // [tokens, width]
  readonly out: GPUBuffer | null // [tokens, width]
  readonly halves?: GPUBuffer | null // [tokens, width] half floats, where products on matrix units take them
}

/** `width`: a multiple of 8. */
export async function addNormOp(gpu: GpuContext, buffers: AddNormBuffers, width: number, eps: number): Promise<Op> {
  const { weight, delta, hidden, out, halves = null } = buffers
  const WG = workgroupFor(gpu, width / 8, 256)
  const kernel = await gpu.kernels.get('addNorm', {
    WIDTH: width,
    EPS: eps,
    WG,
    SHARE: Math.ceil(width / 8 / WG), // eights of a row that a thread has
    ADD: delta !== null,
    VALUES: out !== null,
    HALVES: halves !== null,
  })
  const group = kernel.bind([weight, hidden, delta, out, halves])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, tokens)
}
