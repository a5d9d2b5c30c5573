// Sorts a chunk's (token, rank) pairs by expert for the grouped products.
import type { GpuContext } from './gpuContext.js'
import { uniformBuffer } from './kernel.js'
import type { Op } from './op.js'
import type { ChoiceShape } from './router.js'

/** The most tiles that `tokens` tokens can make. */
export function maxTiles(shape: ChoiceShape, tokens: number): number {
  const pairs = tokens * shape.k
  return Math.min(shape.experts, pairs) + Math.floor(pairs / shape.pairTile)
}

/** Where the pair list starts in the groups buffer, in words. */
export function pairsAt(shape: ChoiceShape): number {
  return 4 + maxTiles(shape, shape.maxTokens) * 4
}

export function groupsBytes(shape: ChoiceShape): number {
  return (pairsAt(shape) + shape.maxTokens * shape.k) * 4
}

export async function groupTokensOp(
  gpu: GpuContext,
  shape: ChoiceShape,
  step: GPUBuffer,
  slotTable: GPUBuffer,
  choice: GPUBuffer,
  groups: GPUBuffer,
  layer: number,
): Promise<Op> {
  const kernel = await gpu.kernels.get('groupTokens', {
    EXPERTS: shape.experts,
    K: shape.k,
    MAX_TOKENS: shape.maxTokens,
    TILE: shape.pairTile,
    PAIRS_AT: pairsAt(shape),
  })
  const which = uniformBuffer(gpu.device, [layer, 0, 0, 0], 'layer')
  const group = kernel.bind([step, which, slotTable, choice, groups])
  return recorder => recorder.dispatch(kernel, group, 1)
}
