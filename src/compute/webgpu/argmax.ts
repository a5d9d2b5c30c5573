// The greedy token of each logits row.
import type { GpuContext } from './gpuContext.js'
import { storageBuffer, uniformBuffer } from './kernel.js'
import type { Op } from './op.js'

/** logits [rows, count] -> out [rows]; `tokens` of the step size is the number of rows. */
export async function argmaxOp(
  gpu: GpuContext,
  logits: GPUBuffer,
  count: number,
  maxRows: number,
  out: GPUBuffer,
): Promise<Op> {
  const [first, second] = await Promise.all([
    gpu.kernels.get('argmax', { FIRST: true }),
    gpu.kernels.get('argmax', { FIRST: false }),
  ])
  const perGroup = Math.max(1024, Math.ceil(count / 256))
  const groups = Math.ceil(count / perGroup)
  const best = storageBuffer(gpu.device, maxRows * groups * 8, 'argmax ranges')
  const firstGroup = first.bind([uniformBuffer(gpu.device, [count, perGroup, 0, 0], 'argmax'), logits, best])
  const secondGroup = second.bind([uniformBuffer(gpu.device, [groups, 0, 0, 0], 'argmax'), best, out])
  return (recorder, { tokens }) => {
    recorder.dispatch(first, firstGroup, groups, tokens)
    recorder.dispatch(second, secondGroup, 1, tokens)
  }
}
