// The down projections of a token's experts, weighted, with the shared expert, added to hidden.
import type { Workspace } from '../../backends/webgpu/memory/workspace.js'
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import { type Op, rebound } from '../../gpu/device/op.js'
import { floatConstants, floatsAt, formatConstants } from '../../gpu/memory/matrixWeights.js'
import type { SlotLayout } from '../../gpu/memory/slotLayout.js'
import type { PoolBuffer } from '../../gpu/memory/slotPools.js'
import type { MoeShape } from '../../model/layers.js'
import { gluConstants } from '../activation/swiGlu.gpu.js'
import { vecShape } from '../matmul/matVec.gpu.js'
import { sharedBindings, sharedConstant } from '../router/router.gpu.js'

export async function expertDownOp(
  gpu: GpuContext,
  layout: SlotLayout,
  pool: PoolBuffer,
  space: Workspace,
  { shared, activation }: Pick<MoeShape, 'shared' | 'activation'>,
  /** The shared expert is the last of the ranks. */
  isShared: boolean,
): Promise<Op> {
  const { down, stride } = layout
  const { bias } = down
  const apart = isShared ? 'none' : shared
  const { shape } = space
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
  const { status, expertGateUp, mixing, hidden } = space
  const rest = [status, expertGateUp, mixing, hidden, ...sharedBindings(apart, space.sharedOut, space.logits)]
  const group = rebound(pool, () => kernel.bind([pool.buffer, pool.buffer, shapes, ...rest]))
  const tiles = Math.ceil(down.rows / ((vec.WG / vec.TEAM) * vec.ROWS))
  return (recorder, { tokens }) => recorder.dispatch(kernel, group(), tiles, tokens)
}
