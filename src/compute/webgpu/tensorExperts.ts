// The experts of prompts on a GPU's matrix units: slots of 4 bits in affine groups, in fast precision. Inputs are half floats; rows
// of pairs lie in the order of groupTokens.
import type { GpuContext } from './gpuContext.js'
import { PAIRS_STEP } from './groupTokens.js'
import type { GroupedMatMulOptions } from './matMul.js'
import { formatConstants, type GpuFormat, type MatrixSegment } from './matrixWeights.js'
import { type Op, rebound } from './op.js'
import type { ChoiceShape } from './router.js'
import { segmentTable } from './segments.js'
import type { SlotLayout, SlotMatrix } from './slotLayout.js'
import type { PoolBuffer } from './slotPools.js'

/** Pairs of an expert per tile, and subgroups of a workgroup. */
export interface ExpertTile {
  readonly pairs: number
  readonly subgroups: number
}

/** For experts with few tokens each: small workgroups wait for weights side by side. */
const SHORT_TILE: ExpertTile = { pairs: 32, subgroups: 4 }
/** For experts with many: more is done with weights once they are there. */
const LONG_TILE: ExpertTile = { pairs: 64, subgroups: 8 }
export const EXPERT_TILES = [SHORT_TILE, LONG_TILE]

const STAGE_COLS = 64
const FRAG_ROWS = 2 // matrices of 16 rows that a subgroup has

const rowsOf = (subgroups: number) => subgroups * FRAG_ROWS * 16

/** By how many tokens an expert has on average. Results do not depend on it. */
export function expertTile({ k, experts }: Pick<ChoiceShape, 'k' | 'experts'>, tokens: number): ExpertTile {
  return (tokens * k) / experts < SHORT_TILE.pairs ? SHORT_TILE : LONG_TILE
}

/** Whether a layer's experts go there: tiles end where matrices do, and a thread brings 16 bytes at a time. */
export function areForTensors(gpu: GpuContext, { stride, gate, up, down }: SlotLayout): boolean {
  const isApt = ({ format, rows, cols, weight, scales, biases, bias }: SlotMatrix) =>
    format.bits === 4 &&
    format.block === undefined &&
    bias === undefined &&
    rows % rowsOf(SHORT_TILE.subgroups) === 0 &&
    cols % (8 * format.group) === 0 &&
    [stride, weight, scales, biases].every(offset => offset % 16 === 0)
  const isAlike = JSON.stringify(gate.format) === JSON.stringify(up.format)
  return gpu.tensors && gpu.fast && isAlike && [gate, up, down].every(isApt)
}

export interface TensorExpertsOptions extends Omit<GroupedMatMulOptions, 'step' | 'pairTile'> {
  readonly tile: ExpertTile
  /** Inputs are rows of tokens; else they lie in the order of pairs. */
  readonly gathers: boolean
}

/** The products of each expert with the rows of its tokens: halves [tokens or places, cols] -> out [places, outStride]. */
export async function tensorExpertsOp(
  gpu: GpuContext,
  pool: PoolBuffer,
  format: GpuFormat,
  cols: number,
  segments: readonly MatrixSegment[],
  halves: GPUBuffer,
  out: GPUBuffer,
  { tile, ...options }: TensorExpertsOptions,
): Promise<Op> {
  const isApt = segments.every(segment => segment.rows % rowsOf(tile.subgroups) === 0)
  const { subgroups } = isApt ? tile : SHORT_TILE
  const rows = rowsOf(subgroups)
  const threads = 32 * subgroups
  const kernel = await gpu.kernels.get('tensorExperts', {
    TENSOR: true,
    ...formatConstants(format),
    SINGLE: segments.length === 1,
    SUB_ROWS: subgroups,
    FRAG_ROWS,
    FRAG_TOKENS: tile.pairs / PAIRS_STEP,
    ROW_TASKS: (rows * STAGE_COLS) / 32 / threads, // units that a thread brings per stage
    TOKEN_TASKS: (tile.pairs * STAGE_COLS) / 8 / threads,
    GATHER: options.gathers,
    PAIRS_AT: options.pairsAt,
    ROWS_SHARE: options.pairsPerRow,
  })
  const table = segmentTable(gpu.device, cols, segments, options.outStride, rows, options.slotStride)
  const group = rebound(pool, () => kernel.bind([pool.buffer, table.buffer, halves, out, options.groups]))
  return (recorder, { tokens }) =>
    recorder.dispatch(kernel, group(), table.tiles, options.maxTiles(tokens), 1, options.label)
}
