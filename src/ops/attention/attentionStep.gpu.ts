// Attention of single tokens from their projections on, split over the sequence: attentionReduce puts the ranges together.
import { type GpuContext, workgroupFor } from '../../gpu/device/gpuContext.js'
import { type Op, rebound } from '../../gpu/device/op.js'
import type { KvPool } from '../../gpu/memory/kvPool.js'
import type { AttentionShape } from '../../model/layers.js'
import type { AttentionInputBuffers } from './attentionInput.gpu.js'
import { attentionConstants, type HeadSizes, headsPerTile, inputConstants } from './attentionShape.gpu.js'

export interface AttentionStepBuffers extends Omit<AttentionInputBuffers, 'queries'> {
  readonly parts: GPUBuffer // [tokens, heads, splits, headDim + 4]
}

export interface AttentionStepOptions {
  readonly splits: number
  readonly longestRun: number // tokens
  readonly isHead?: boolean // of the head for drafts, which may not have seen a sequence from its beginning
}

const TILE = 32 // divides PAGE_TOKENS
const THREADS = 256

export async function attentionStepOp(
  gpu: GpuContext,
  config: HeadSizes & { readonly rmsNormEps: number },
  shape: AttentionShape,
  { norms, tokenInfo, angles, inputs, parts }: AttentionStepBuffers,
  pool: KvPool,
  layer: number,
  { splits, longestRun, isHead = false }: AttentionStepOptions,
): Promise<Op> {
  const tiles = tilesFor(gpu, config, longestRun)
  const kernel = await gpu.kernels.get('attentionStep', {
    ...attentionConstants(config, shape),
    ...inputConstants(config, shape),
    ...tiles,
    TILE,
    WG: workgroupFor(gpu, Math.min(gpu.tuning.WG * 8, THREADS), THREADS),
    FRESH: longestRun,
    SPLITS: splits,
    SCALE: config.headDim ** -0.5,
    ...(isHead ? { FIRST_ROW: true } : { WINDOW: shape.window ?? 0 }),
  })
  const group = rebound(pool, () => {
    return kernel.bind([norms, tokenInfo, angles, inputs, pool.pageTable, pool.buffer(layer), parts])
  })
  const groups = config.numHeads / tiles.HEADS_TILE
  return (recorder, { tokens }) => recorder.dispatch(kernel, group(), groups, tokens, splits)
}

/** As many heads of a workgroup and threads of a key as there is workgroup memory for. */
function tilesFor({ device }: GpuContext, config: HeadSizes, fresh: number): { HEADS_TILE: number; PARTS: number } {
  const { headDim, numHeads, numKvHeads } = config
  const room = device.limits.maxComputeWorkgroupStorageSize
  let heads = headsPerTile(config, 1)
  const floats = (parts: number) => heads * (headDim + (parts + 2) * TILE + 4) + fresh * headDim + (heads + fresh) * 17
  const fits = (parts: number) => floats(parts) * 4 + 64 <= room
  while (heads > 1 && !fits(4)) {
    do heads--
    while ((numHeads / numKvHeads) % heads !== 0)
  }
  return { HEADS_TILE: heads, PARTS: [8, 4, 2].find(fits) ?? 1 }
}
