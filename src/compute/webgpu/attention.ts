// Attention over paged keys and values: whole for prompts, split over the sequence for decoding.
import type { ModelConfig } from '../../model/config.js'
import { attentionConstants, headsPerTile } from './attentionShape.js'
import type { GpuContext } from './gpuContext.js'
import type { KvPool } from './kvPool.js'
import { type Op, rebound } from './op.js'

export interface AttentionBuffers {
  readonly step: GPUBuffer
  readonly tokenInfo: GPUBuffer
  readonly inputs: GPUBuffer // [tokens, stride of attentionColumns]
  readonly queries: GPUBuffer // [tokens, heads * headDim]
  readonly parts: GPUBuffer // [tokens, heads, splits, headDim + 2]; any buffer where splits is 1
  readonly out: GPUBuffer // [tokens, heads * headDim]
}

const TILE = 32 // divides PAGE_TOKENS

export async function attentionOp(
  gpu: GpuContext,
  config: ModelConfig,
  buffers: AttentionBuffers,
  pool: KvPool,
  layer: number,
  splits: number,
): Promise<Op> {
  const heads = headsPerTile(config, 1)
  const kernel = await gpu.kernels.get('attention', {
    ...attentionConstants(config),
    HEADS_TILE: heads,
    QUERIES: 1,
    TILE,
    OWNED: Math.ceil((heads * config.headDim) / 4 / 128),
    SPLITS: splits,
    SCALE: config.headDim ** -0.5,
  })
  const { step, tokenInfo, inputs, queries, parts, out } = buffers
  const group = rebound(pool, () => {
    const common = [step, tokenInfo, pool.pageTable, queries, pool.buffer(layer)]
    return kernel.bind(splits > 1 ? [...common, parts] : [...common, inputs, out])
  })
  return (recorder, { tokens }) => recorder.dispatch(kernel, group(), config.numHeads / heads, tokens, splits)
}
