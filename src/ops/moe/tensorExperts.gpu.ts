// The experts of prompts on a GPU's matrix units: slots of 4 bits in affine groups, in fast precision. Inputs are half floats; rows
// of pairs lie in the order of groupTokens.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { type Op, rebound } from '../../gpu/device/op.js'
import { formatConstants, type GpuFormat, type MatrixSegment } from '../../gpu/memory/matrixWeights.js'
import type { SlotLayout, SlotMatrix } from '../../gpu/memory/slotLayout.js'
import type { PoolBuffer } from '../../gpu/memory/slotPools.js'
import type { GroupedMatMulOptions } from '../matmul/matMul.gpu.js'
import { segmentTable } from '../matmul/segments.gpu.js'
import type { ChoiceShape } from '../router/router.gpu.js'
import { PAIRS_STEP } from './groupTokens.gpu.js'

/** How a workgroup goes through an expert: so many of its pairs and of its rows, some columns at a time. */
export interface ExpertTile {
  readonly pairs: number
  readonly subgroups: number
  readonly fragRows: number // matrices of 16 rows that a subgroup has
  readonly stage: number // columns
  readonly most: number // pairs of an expert on average, up to which this tile is the best
}

/** From few pairs to many: the more there are, the more is done with weights once they are there. */
export const EXPERT_TILES: readonly ExpertTile[] = [
  { pairs: 16, subgroups: 4, fragRows: 1, stage: 64, most: 8 },
  { pairs: 32, subgroups: 4, fragRows: 2, stage: 64, most: 31 },
  { pairs: 64, subgroups: 4, fragRows: 2, stage: 32, most: Number.POSITIVE_INFINITY },
]
const MOST_ROWS = 128 // of a tile
const MOST_SURE = 2 // sixteens of pairs that are multiplied even where there are fewer

/** By how many tokens an expert has on average. Results do not depend on it. */
export function expertTile({ k, experts }: Pick<ChoiceShape, 'k' | 'experts'>, tokens: number): ExpertTile {
  return EXPERT_TILES.find(({ most }) => (tokens * k) / experts <= most) as ExpertTile
}

/** Whether a layer's experts go there: tiles end where matrices do, and a thread brings 16 bytes at a time. */
export function areForTensors(gpu: GpuContext, { stride, gate, up, down }: SlotLayout): boolean {
  const isApt = ({ format, rows, cols, weight, scales, biases, bias }: SlotMatrix) =>
    format.bits === 4 &&
    format.block === undefined &&
    bias === undefined &&
    rows % MOST_ROWS === 0 &&
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
  const { pairs, subgroups, fragRows, stage } = tile
  const rows = subgroups * fragRows * 16
  const threads = 32 * subgroups
  const kernel = await gpu.kernels.get('tensorExperts', {
    TENSOR: true,
    ...formatConstants(format),
    SINGLE: segments.length === 1,
    SUB_ROWS: subgroups,
    FRAG_ROWS: fragRows,
    SURE: Math.min(MOST_SURE, pairs / PAIRS_STEP),
    MORE: Math.max(0, pairs / PAIRS_STEP - MOST_SURE),
    STAGE: stage,
    STEPS: stage / 16,
    ROW_TASKS: (rows * stage) / 32 / threads, // units that a thread brings per stage
    TOKEN_TASKS: (pairs * stage) / 8 / threads,
    GATHER: options.gathers,
    PAIRS_AT: options.pairsAt,
    ROWS_SHARE: options.pairsPerRow,
  })
  const table = segmentTable(gpu.device, cols, segments, options.outStride, rows, options.slotStride)
  const group = rebound(pool, () => kernel.bind([pool.buffer, table.buffer, halves, out, options.groups]))
  return (recorder, { tokens }) =>
    recorder.dispatch(kernel, group(), table.tiles, options.maxTiles(tokens), 1, options.label)
}
