// The two halves that the head for drafts takes in, normed and side by side.
import { type GpuContext, workgroupFor } from '../../gpu/device/gpuContext.js'
import { type Op, rebound } from '../../gpu/device/op.js'
import type { StatePool } from '../../gpu/memory/statePool.js'

export interface JoinBuffers {
  readonly step: GPUBuffer
  readonly tokenInfo: GPUBuffer
  readonly norms: GPUBuffer // [3, width]: of embeddings, of hidden rows, the final one before that
  readonly embedded: GPUBuffer // [tokens, width]
  readonly hidden: GPUBuffer // [tokens, width], before the final norm
  readonly joined: GPUBuffer // [tokens, 2, width]
}

/**
 * Where the hidden row before a token is: `rows`: of tokens of a step, in the row before or kept with the sequence's state, and
 * the last rows are kept in turn; `first`: kept with the state; `next`: the head's own.
 */
export type RowBefore = 'rows' | 'first' | 'next'

export async function joinHalvesOp(
  gpu: GpuContext,
  buffers: JoinBuffers,
  states: StatePool,
  width: number,
  eps: number,
  where: RowBefore,
): Promise<Op> {
  const kernel = await gpu.kernels.get('concatNorms', {
    WIDTH: width,
    EPS: eps,
    WG: workgroupFor(gpu, width / 4, 256),
    CHAIN: where === 'next',
    STORE: where === 'rows',
  })
  const { step, tokenInfo, norms, embedded, hidden, joined } = buffers
  const group = rebound(states, () => {
    return kernel.bind([step, tokenInfo, norms, embedded, hidden, states.lastRows, joined])
  })
  return (recorder, { tokens }) => recorder.dispatch(kernel, group(), tokens)
}
