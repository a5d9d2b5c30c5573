// Router logits to experts, weights and slots, on the GPU.
import { type GpuContext, workgroupFor } from './gpuContext.js'
import { uniformBuffer } from './kernel.js'
import type { Op } from './op.js'

export interface TopKBuffers {
  readonly logits: GPUBuffer // [tokens, experts + 1]
  readonly slotTable: GPUBuffer // [layers, experts]
  readonly choice: GPUBuffer // [layers, maxTokens, K]
  readonly mixing: GPUBuffer // [tokens, K]: slot, weight
  readonly status: GPUBuffer
}

export interface TopKShape {
  readonly experts: number
  readonly k: number
  readonly maxTokens: number
}

/** `decode`: misses raise the flag, and the shared expert may have a slot of its own. */
export async function topKOp(
  gpu: GpuContext,
  shape: TopKShape,
  buffers: TopKBuffers,
  layer: number,
  decode: { readonly sharedSlot: number | null } | null,
): Promise<Op> {
  const kernel = await gpu.kernels.get('topK', {
    EXPERTS: shape.experts,
    K: shape.k,
    MAX_TOKENS: shape.maxTokens,
    LOGITS_STRIDE: shape.experts + 1,
    WG: workgroupFor(gpu, Math.max(shape.experts, shape.k + 1), 256),
    CHECK_MISSES: decode !== null,
    SHARED: typeof decode?.sharedSlot === 'number',
    RANKS: shape.k + (typeof decode?.sharedSlot === 'number' ? 1 : 0),
  })
  const { logits, slotTable, choice, mixing, status } = buffers
  const which = uniformBuffer(gpu.device, [layer, decode?.sharedSlot ?? 0, 0, 0], 'layer')
  const group = kernel.bind([which, logits, slotTable, choice, mixing, status])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, tokens)
}
