// Router logits to experts, weights and slots, on the GPU.
import type { GpuContext } from './gpuContext.js'
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

export async function topKOp(
  gpu: GpuContext,
  shape: TopKShape,
  buffers: TopKBuffers,
  layer: number,
  checkMisses: boolean,
): Promise<Op> {
  const kernel = await gpu.kernels.get('topK', {
    EXPERTS: shape.experts,
    K: shape.k,
    MAX_TOKENS: shape.maxTokens,
    LOGITS_STRIDE: shape.experts + 1,
    CHECK_MISSES: checkMisses,
  })
  const { logits, slotTable, choice, mixing, status } = buffers
  const which = uniformBuffer(gpu.device, [layer, 0, 0, 0], 'layer')
  const group = kernel.bind([which, logits, slotTable, choice, mixing, status])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, tokens)
}
