// Experts' rows by their weights, plus the shared expert.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import type { Op } from '../../gpu/device/op.js'
import type { MoeShape } from '../../model/layers.js'
import { type ChoiceShape, sharedBindings, sharedConstant } from '../router/router.gpu.js'
import { placesAt } from './groupTokens.gpu.js'

export interface CombineBuffers {
  readonly expertRows: GPUBuffer // [tokens, K, width], or [places, width] in the order of `groups`
  readonly mixing: GPUBuffer // [tokens, K]
  readonly sharedRows: GPUBuffer // [tokens, width]
  readonly logits: GPUBuffer // [tokens, experts + 1], the shared gate last
  readonly out: GPUBuffer // [tokens, width]
}

export async function combineOp(
  gpu: GpuContext,
  shape: ChoiceShape,
  shared: MoeShape['shared'],
  buffers: CombineBuffers,
  width: number,
  sorted: { readonly groups: GPUBuffer } | null = null,
): Promise<Op> {
  const kernel = await gpu.kernels.get('combine', {
    K: shape.k,
    SHARED: sharedConstant(shared),
    GATE_AT: shape.experts,
    GATE_STRIDE: shape.logitsStride,
    ...(sorted && { PLACES_AT: placesAt(shape) }),
  })
  const { expertRows, mixing, sharedRows, logits, out } = buffers
  const size = uniformBuffer(gpu.device, [width, 0, 0, 0], 'combine shape')
  const shares = sharedBindings(shared, sharedRows, logits)
  const group = kernel.bind([size, expertRows, mixing, out, ...shares, sorted?.groups ?? null])
  return (recorder, { tokens }) => recorder.dispatch(kernel, group, Math.ceil(width / 128), tokens)
}
