// Attention of prompts on a GPU's matrix units, in fast precision. Decoding, the head for drafts and other shapes are attention.gpu.ts's.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { type Op, rebound } from '../../gpu/device/op.js'
import type { ShaderConstants } from '../../gpu/device/shaderSource.js'
import type { KvPool } from '../../gpu/memory/kvPool.js'
import type { AttentionShape } from '../../model/layers.js'
import type { AttentionBuffers } from './attention.gpu.js'
import { attentionConstants, type HeadSizes } from './attentionShape.gpu.js'

const TILE = 32 // positions; divides PAGE_TOKENS
const ROWS = 64 // of a workgroup: tokens, each with the query heads of a kv head
const SUBGROUPS = 8
const SUB_ROWS = 2 // subgroups that share the rows of the sums; the others share their columns

/** Whether heads are of sizes that tiles can be made of. */
export function isForTensorAttention(gpu: GpuContext, { numHeads, numKvHeads, headDim }: HeadSizes): boolean {
  const isApt = headDim % 64 === 0 && headDim <= 256 && ROWS % (numHeads / numKvHeads) === 0
  return gpu.tensors && gpu.fast && isApt
}

export async function tensorAttentionOp(
  gpu: GpuContext,
  config: HeadSizes,
  shape: AttentionShape,
  buffers: AttentionBuffers & { readonly runInfo: GPUBuffer },
  pool: KvPool,
  layer: number,
): Promise<Op> {
  const { numHeads, numKvHeads, headDim } = config
  const kernel = await gpu.kernels.get('tensorAttention', {
    ...attentionConstants(config, shape),
    ...tensorAttentionTile(headDim),
    SCALE: headDim ** -0.5,
    WINDOW: shape.window ?? 0,
    GATED: shape.outputGate,
    SINKS: shape.sinks,
  })
  const { step, tokenInfo, runInfo, inputs, queries, sinks, out } = buffers
  const gates = shape.outputGate ? inputs : null
  const group = rebound(pool, () => {
    return kernel.bind([step, tokenInfo, runInfo, pool.pageTable, queries, pool.buffer(layer), out, gates, sinks])
  })
  const perBlock = ROWS / (numHeads / numKvHeads)
  // Every run but one may leave a workgroup that is not full.
  return (recorder, { tokens, runs }) =>
    recorder.dispatch(kernel, group(), numKvHeads, Math.ceil(tokens / perBlock) + runs - 1, 1, 'attention')
}

/** What a subgroup has of a tile, in matrices of 16 x 16, and a thread. */
export function tensorAttentionTile(headDim: number): ShaderConstants {
  const threads = 32 * SUBGROUPS
  return {
    TENSOR: true,
    TILE,
    ROWS,
    SUBGROUPS_USED: SUBGROUPS,
    SUB_ROWS,
    DIM_FRAGS: headDim / 16,
    TILE_FRAGS: TILE / 16,
    SCORE_COLS: ((ROWS / 16) * (TILE / 16)) / SUBGROUPS,
    FRAG_ROWS: ROWS / 16 / SUB_ROWS,
    FRAG_COLS: headDim / 16 / (SUBGROUPS / SUB_ROWS),
    TASKS: (TILE * headDim) / 4 / threads, // quads of a tile that a thread brings
    COLUMNS: (TILE * ROWS) / threads, // of a row's softmax that a thread has
  }
}
