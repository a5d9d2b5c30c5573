// Sorts a chunk's (token, rank) pairs by expert for the grouped products.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import type { Op } from '../../gpu/device/op.js'
import type { ChoiceShape } from '../router/router.gpu.js'

/** The pairs of an expert begin at multiples of this in the list, where rows go to matrix units in sixteens. */
export const PAIRS_STEP = 16

/** The most tiles that `tokens` tokens can make. */
export function maxTiles({ experts, k, pairTile }: ChoiceShape, tokens: number, tile = pairTile): number {
  const pairs = tokens * k
  return Math.min(experts, pairs) + Math.floor(pairs / tile)
}

/** The longest list of pairs that `tokens` tokens can make. */
export function mostPlaces({ experts, k, isPadded = false }: ChoiceShape, tokens: number): number {
  const pairs = tokens * k
  return isPadded ? pairs + Math.min(experts, pairs) * (PAIRS_STEP - 1) : pairs
}

/** Where the pair list starts in the groups buffer, in words: after the most tiles, which the smallest make. */
export function pairsAt(shape: ChoiceShape): number {
  return 4 + maxTiles(shape, shape.maxTokens, shape.isPadded ? PAIRS_STEP : shape.pairTile) * 4
}

/** Where the place of each pair in that list is, where rows stay in its order. */
export function placesAt(shape: ChoiceShape): number {
  return pairsAt(shape) + mostPlaces(shape, shape.maxTokens)
}

export function groupsBytes(shape: ChoiceShape): number {
  return (placesAt(shape) + (shape.isPadded ? shape.maxTokens * shape.k : 0)) * 4
}

/** `sorted`: pairs for matrix units, in tiles of so many. */
export async function groupTokensOp(
  gpu: GpuContext,
  shape: ChoiceShape,
  step: GPUBuffer,
  slotTable: GPUBuffer,
  choice: GPUBuffer,
  groups: GPUBuffer,
  layer: number,
  sorted: { readonly tile: number } | null = null,
): Promise<Op> {
  const kernel = await gpu.kernels.get('groupTokens', {
    EXPERTS: shape.experts,
    K: shape.k,
    MAX_TOKENS: shape.maxTokens,
    TILE: sorted?.tile ?? shape.pairTile,
    STEP: sorted === null ? 1 : PAIRS_STEP,
    PAIRS_AT: pairsAt(shape),
    ...(sorted && { PLACES_AT: placesAt(shape) }),
  })
  const which = uniformBuffer(gpu.device, [layer, 0, 0, 0], 'layer')
  const group = kernel.bind([step, which, slotTable, choice, groups])
  return recorder => recorder.dispatch(kernel, group, 1)
}
