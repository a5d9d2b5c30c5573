// Attention of a prompt's tokens over paged keys and values. Single tokens have attentionStep.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { type Op, rebound } from '../../gpu/device/op.js'
import type { KvPool } from '../../gpu/memory/kvPool.js'
import type { AttentionShape } from '../../model/layers.js'
import { attentionConstants, type HeadSizes, headsPerTile } from './attentionShape.gpu.js'

export interface AttentionBuffers {
  readonly step: GPUBuffer
  readonly tokenInfo: GPUBuffer
  readonly inputs: GPUBuffer // [tokens, stride of attentionColumns]
  readonly queries: GPUBuffer // [tokens, heads * headDim]
  readonly sinks: GPUBuffer | null // [heads]
  readonly out: GPUBuffer // [tokens, heads * headDim]
}

const TILE = 32 // divides PAGE_TOKENS

export async function attentionOp(
  gpu: GpuContext,
  config: HeadSizes,
  shape: AttentionShape,
  buffers: AttentionBuffers,
  pool: KvPool,
  layer: number,
  isHead = false, // of the head for drafts, which may not have seen a sequence from its beginning
): Promise<Op> {
  const heads = headsPerTile(config, 1)
  const kernel = await gpu.kernels.get('attention', {
    ...attentionConstants(config, shape),
    HEADS_TILE: heads,
    QUERIES: 1,
    TILE,
    ...scoreThreads(gpu, config, heads),
    OWNED: Math.ceil((heads * config.headDim) / 4 / 128),
    SCALE: config.headDim ** -0.5,
    ...(isHead ? { FIRST_ROW: true } : { WINDOW: shape.window ?? 0 }),
    GATED: shape.outputGate,
    SINKS: shape.sinks,
  })
  const { step, tokenInfo, inputs, queries, sinks, out } = buffers
  const gate = shape.outputGate ? inputs : null
  const group = rebound(pool, () => {
    return kernel.bind([step, tokenInfo, pool.pageTable, queries, pool.buffer(layer), out, gate, sinks])
  })
  return (recorder, { tokens }) => recorder.dispatch(kernel, group(), config.numHeads / heads, tokens)
}

/** Who computes a tile's scores: two keys of a thread share what it loads of queries, where there is memory for as many parts. */
function scoreThreads({ device }: GpuContext, { headDim }: HeadSizes, heads: number): { PARTS: number; KEYS: number } {
  const PARTS = 8
  const bytes = heads * 4 * (headDim + (PARTS + 1) * TILE + 3)
  return bytes <= device.limits.maxComputeWorkgroupStorageSize ? { PARTS, KEYS: 2 } : { PARTS: 4, KEYS: 1 }
}
