// The greedy token of each logits row, or that there is none because something is not finite.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { storageBuffer, uniformBuffer } from '../../gpu/device/kernel.js'
import type { Op } from '../../gpu/device/op.js'

/** In place of a token: a logit, or a value that logits were made of, is NaN or infinite. */
export const NOT_FINITE = 0xffffffff

/**
 * logits [rows, count] -> out [rows, outStride]; `tokens` of the step size is the number of rows. `source`: [rows, width], what the
 * logits were made of. Products of int8 may lose a NaN on the way, so it is looked at as well.
 */
export async function argmaxOp(
  gpu: GpuContext,
  logits: GPUBuffer,
  count: number,
  source: { readonly rows: GPUBuffer; readonly width: number },
  maxRows: number,
  out: GPUBuffer,
  outStride = 1, // words from one row's token to the next
): Promise<Op> {
  const [first, second] = await Promise.all([
    gpu.kernels.get('argmax', { FIRST: true }),
    gpu.kernels.get('argmax', { FIRST: false, OUT_STRIDE: outStride }),
  ])
  const perGroup = Math.max(1024, Math.ceil(count / 256))
  const groups = Math.ceil(count / perGroup)
  const best = storageBuffer(gpu.device, maxRows * groups * 16, 'argmax ranges')
  const firstGroup = first.bind([uniformBuffer(gpu.device, [count, perGroup, 0, 0], 'argmax'), logits, best])
  const secondShape = uniformBuffer(gpu.device, [groups, 0, source.width, 0], 'argmax')
  const secondGroup = second.bind([secondShape, best, source.rows, out])
  return (recorder, { tokens }) => {
    recorder.dispatch(first, firstGroup, groups, tokens)
    recorder.dispatch(second, secondGroup, 1, tokens)
  }
}
