// The down projections of a token's experts, weighted, with the shared expert, added to hidden.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import { type Op, rebound } from '../../gpu/device/op.js'
import { floatConstants, floatsAt, formatConstants } from '../../gpu/memory/matrixWeights.js'
import type { SlotLayout } from '../../gpu/memory/slotLayout.js'
import type { PoolBuffer } from '../../gpu/memory/slotPools.js'
import type { MoeShape } from '../../model/layers.js'
import { gluConstants } from '../activation/swiGlu.gpu.js'
import { vecShape } from '../matmul/matVec.gpu.js'
import { type ChoiceShape, sharedBindings, sharedConstant } from '../router/router.gpu.js'

interface ExpertDownBuffers {
  readonly shape: Pick<ChoiceShape, 'experts' | 'k' | 'logitsStride'>
  readonly status: GPUBuffer // [0] not 0 after a miss
  readonly expertGateUp: GPUBuffer // [tokens, ranks, 2 * down.cols]
  readonly mixing: GPUBuffer // [tokens, ranks]: slot, weight
  readonly hidden: GPUBuffer // [tokens, down.rows]
  readonly sharedOut: GPUBuffer // [tokens, down.rows], of a shared expert that is not among the ranks
  readonly logits: GPUBuffer // [tokens, logitsStride], the shared expert's gate after the experts
}

export async function expertDownOp(
  gpu: GpuContext,
  layout: SlotLayout,
  pool: PoolBuffer,
  buffers: ExpertDownBuffers,
  { shared, activation }: Pick<MoeShape, 'shared' | 'activation'>,
  /** The shared expert is the last of the ranks. */
  isShared: boolean,
): Promise<Op> {
  const { down, stride } = layout
  const { bias } = down
  const apart = isShared ? 'none' : shared
  const { shape, status, expertGateUp, mixing, hidden, sharedOut, logits } = buffers
  const ranks = shape.k + (isShared ? 1 : 0)
  const fast = gpu.fast && down.format.bits < 16
  const vec = vecShape(gpu, down.format, down.rows, down.cols * ranks, fast)
  const kernel = await gpu.kernels.get('expertDown', {
    ...formatConstants(down.format),
    ...vec,
    FAST: fast,
    K: ranks,
    ...gluConstants(activation),
    ...(bias && { BIAS: true, ...floatConstants(bias) }),
    SHARED: sharedConstant(apart),
    GATE_AT: shape.experts,
    GATE_STRIDE: shape.logitsStride,
  })
  const values = [
    down.rows,
    down.cols,
    down.weight / 4,
    down.scales / 2,
    down.biases / 2,
    stride / 4,
    bias ? floatsAt(bias) : 0,
    0,
  ]
  const shapes = uniformBuffer(gpu.device, values, 'expert down')
  const rest = [status, expertGateUp, mixing, hidden, ...sharedBindings(apart, sharedOut, logits)]
  const group = rebound(pool, () => kernel.bind([pool.buffer, pool.buffer, shapes, ...rest]))
  const tiles = Math.ceil(down.rows / ((vec.WG / vec.TEAM) * vec.ROWS))
  return (recorder, { tokens }) => recorder.dispatch(kernel, group(), tiles, tokens)
}
