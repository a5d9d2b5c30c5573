// Router logits to experts, weights and slots, on the GPU.
import { type GpuContext, laneCount, workgroupFor } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import type { Op } from '../../gpu/device/op.js'
import type { ShaderConstants } from '../../gpu/device/shaderSource.js'
import type { MoeShape, RouterShape } from '../../model/layers.js'

export interface RouterBuffers {
  readonly logits: GPUBuffer // [tokens, experts + 1]
  readonly slotTable: GPUBuffer // [layers, experts]
  readonly choice: GPUBuffer // [layers, maxTokens, K], and after them the weights, or what DecodeChoice has
  readonly mixing: GPUBuffer // [tokens, K]: slot, weight
  readonly status: GPUBuffer
  readonly selectionBias: GPUBuffer | null // [1 + ahead, experts]
  readonly weightsRow?: number // of `choice`, in prompts: the weights of the first layer, then those of the others
}

export interface ChoiceShape {
  readonly experts: number
  readonly k: number
  readonly maxTokens: number
  readonly logitsStride: number // columns of a row of router logits
  readonly pairTile: number // pairs of a tile of the experts' products
  /** Experts may go to matrix units, which want their pairs in sixteens. */
  readonly isPadded?: boolean
}

export interface DecodeChoice {
  readonly sharedSlot: number | null // the shared expert may have a slot of its own
  readonly ahead: number // layers whose logits follow in each row: their choice is a guess
  readonly layers: number // of the model: guesses come after their rows
  /** A slot of finite weights, for experts that the host computes. */
  readonly spareSlot: number
  /** The row of `choice` for the weights of experts that are left to the host; `NOT_LEFT` for all others. */
  readonly leftRow: number
}

export const NOT_LEFT = 0xffffffff

/** `decode`: misses raise the flag. */
export async function routerOp(
  gpu: GpuContext,
  shape: ChoiceShape,
  { router, shared }: Pick<MoeShape, 'router' | 'shared'>,
  buffers: RouterBuffers,
  layer: number,
  decode: DecodeChoice | null,
): Promise<Op> {
  const { sharedSlot = null, ahead = 0, layers = 0, spareSlot = 0, leftRow = 0 } = decode ?? {}
  const kernel = await gpu.kernels.get('router', {
    ...choiceConstants(gpu, shape, router, sharedSlot === null ? 'none' : shared),
    WG: workgroupFor(gpu, Math.max(shape.experts, shape.k + 1), 256),
    CHECK_MISSES: decode !== null,
    RANKS: shape.k + (sharedSlot === null ? 0 : 1),
  })
  const { logits, slotTable, choice, mixing, status, selectionBias, weightsRow = 0 } = buffers
  const which = uniformBuffer(gpu.device, [layer, sharedSlot ?? 0, layers, spareSlot, leftRow, weightsRow], 'layer')
  const group = kernel.bind([which, choice, mixing, status, logits, slotTable, selectionBias])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, tokens, 1 + ahead)
}

/** Of routerChoice.wgsl. `shared`: the shared expert that has a slot. */
export function choiceConstants(
  gpu: GpuContext,
  shape: ChoiceShape,
  router: RouterShape,
  shared: MoeShape['shared'],
): ShaderConstants {
  return {
    LANES: laneCount(gpu),
    EXPERTS: shape.experts,
    K: shape.k,
    MAX_TOKENS: shape.maxTokens,
    LOGITS_STRIDE: shape.logitsStride,
    SHARED: sharedConstant(shared),
    ...routerConstants(router),
  }
}

// The order of the logits and a softmax over the chosen are enough for most; others need every expert's score.
function routerConstants(router: RouterShape): ShaderConstants {
  const { score, order, selectionBias, groups, renormalize, scale } = router
  const scaled: ShaderConstants = scale === 1 ? {} : { SCALED: true, SCALE: scale }
  const isPlain = order === 'topThenSoftmax' || (score === 'softmax' && renormalize)
  if (isPlain && !selectionBias && groups === null) return scaled
  return {
    ...scaled,
    SCORES: true,
    SIGMOID: score === 'sigmoid',
    SELECTION_BIAS: selectionBias,
    GROUPS: groups?.count ?? 1,
    GROUPS_USED: groups?.used ?? 1,
    RENORMALIZE: renormalize,
  }
}

/** Columns of a row of router logits: the experts, the shared expert's gate, the experts of the layers ahead. */
export function logitsStride(experts: number, ahead: number): number {
  return experts + 1 + ahead * experts
}

/** How kernels that add the shared expert are told of it. */
export function sharedConstant(shared: MoeShape['shared']): 0 | 1 | 2 {
  return shared === 'none' ? 0 : shared === 'gated' ? 1 : 2
}

/** What they bind for it: its rows, and the logits with its gate. */
export function sharedBindings(shared: MoeShape['shared'], rows: GPUBuffer, logits: GPUBuffer): (GPUBuffer | null)[] {
  return [shared === 'none' ? null : rows, shared === 'gated' ? logits : null]
}
