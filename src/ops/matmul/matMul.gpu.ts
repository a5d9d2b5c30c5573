// Matrix products for many tokens: the prompt's kernels. In fast precision, quantized matrices take packed activations, or half
// floats where a GPU has matrix units for them; plain ones, and everything in exact precision, take float32.
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import { type Op, rebound, sequence } from '../../gpu/device/op.js'
import type { ActivationBuffers } from '../../gpu/memory/activationBuffers.js'
import {
  floatConstants,
  formatConstants,
  type GpuFormat,
  type MatrixPart,
  type MatrixSegment,
} from '../../gpu/memory/matrixWeights.js'
import type { PoolBuffer } from '../../gpu/memory/slotPools.js'
import { halfRowsOp } from './halfRows.gpu.js'
import { quantizeOp } from './quantize.gpu.js'
import { segmentTable } from './segments.gpu.js'
import { isForTensors, tensorMulOp } from './tensorMul.gpu.js'

const ROWS = 64
const WANTED_WORKGROUPS = 400
const FEW_TILES = 8 // of rows: no more than a router has
const SMALL_ROWS = 32

export interface MatMulOptions {
  readonly step: GPUBuffer
  readonly maxTokens: number
  readonly outStride: number
  /** Added by column of the output row. */
  readonly bias?: GPUBuffer | null // [outStride]
  /** The most tokens of a tile, where fewer come than `maxTokens`. */
  readonly mostTile?: number
  /** float32 activations even in fast precision: for routers. */
  readonly exact?: boolean
  /** The input is there as half floats already, where these are what it is wanted as. */
  readonly hasHalves?: boolean
  readonly label: string
}

const HALVES = -1 // the order of half floats, where others are bits

/** What a product takes: half floats, as float32 (0), or as bytes in the order of weights of some bits. */
function orderFor(gpu: GpuContext, part: MatrixPart, { exact = false, bias = null, maxTokens }: ProductKind): number {
  if (!gpu.fast || exact || part.format.bits >= 16) return 0
  return bias === null && isForTensors(gpu, part, maxTokens) ? HALVES : part.format.bits
}

type ProductKind = Pick<MatMulOptions, 'exact' | 'bias' | 'maxTokens'>

/** Whether all of a product's input is wanted as half floats. */
export function takesHalves(gpu: GpuContext, parts: readonly MatrixPart[], kind: ProductKind): boolean {
  return parts.every(part => orderFor(gpu, part, kind) === HALVES)
}

/** Packs the input once per format that wants it packed, then one product per part. */
export async function matMulOp(
  gpu: GpuContext,
  parts: readonly MatrixPart[],
  input: ActivationBuffers,
  out: GPUBuffer,
  options: MatMulOptions,
): Promise<Op> {
  const orderOf = (part: MatrixPart) => orderFor(gpu, part, options)
  const ops: Promise<Op>[] = []
  for (const order of new Set(parts.map(orderOf))) {
    const [{ cols: width }] = parts
    if (order === HALVES && !options.hasHalves) ops.push(halfRowsOp(gpu, input, width))
    else if (order > 0) ops.push(quantizeOp(gpu, input, width, order))
    for (const part of parts.filter(each => orderOf(each) === order)) {
      if (order === HALVES) ops.push(tensorMulOp(gpu, part, input, out, options))
      else ops.push(onePart(gpu, part, order !== 0, input, out, options))
    }
  }
  return sequence(await Promise.all(ops))
}

interface Tile {
  readonly ROWS: number
  readonly TOKENS: number
  readonly TEAMS: number // that share the columns of a float32 product
}

// Small matrices get small tiles, so that they reach more of the GPU. A matrix's choice never changes while it is loaded:
// the same kernel serves prompts of any length, and no element depends on the tile it is in.
function tileOf(gpu: GpuContext, part: MatrixPart, fast: boolean, { maxTokens, mostTile }: MatMulOptions): Tile {
  const tiles = (rows: number) => part.segments.reduce((sum, segment) => sum + Math.ceil(segment.rows / rows), 0)
  const most = Math.min(gpu.tuning.TILE_TOKENS, mostTile ?? Number.POSITIVE_INFINITY)
  let TOKENS = most
  while (TOKENS > 16 && tiles(ROWS) * Math.ceil(maxTokens / TOKENS) < WANTED_WORKGROUPS) TOKENS /= 2
  // A router's product is small, and waits for memory most of the time: half the rows, and several teams.
  const isSmall = !fast && (tiles(ROWS) <= FEW_TILES || tiles(ROWS) * Math.ceil(maxTokens / 16) < WANTED_WORKGROUPS)
  if (!isSmall) return { ROWS, TOKENS, TEAMS: 1 }
  const few = Math.min(SMALL_ROWS, most)
  const teamBytes = (SMALL_ROWS + few) * 32 * 4
  const TEAMS = 4 * teamBytes <= gpu.device.limits.maxComputeWorkgroupStorageSize ? 4 : 2
  return { ROWS: SMALL_ROWS, TOKENS: few, TEAMS }
}

async function onePart(
  gpu: GpuContext,
  part: MatrixPart,
  fast: boolean,
  input: ActivationBuffers,
  out: GPUBuffer,
  options: MatMulOptions,
): Promise<Op> {
  const tile = tileOf(gpu, part, fast, options)
  const { bias = null } = options
  const kernel = await gpu.kernels.get('matMul', {
    ...formatConstants(part.format),
    FAST: fast,
    GROUPED: false,
    SINGLE: part.segments.length === 1,
    ...tile,
    ...(bias === null ? {} : { BIAS: true, ...floatConstants({ type: 'F32' }) }),
  })
  const table = segmentTable(gpu.device, part.cols, part.segments, options.outStride, tile.ROWS)
  const group = kernel.bind([
    part.buffer,
    table.buffer,
    options.step,
    fast ? input.packed : input.values,
    input.scales,
    out,
    bias,
  ])
  return (recorder, { tokens }) => {
    recorder.dispatch(kernel, group, table.tiles, Math.ceil(tokens / tile.TOKENS), 1, options.label)
  }
}

export interface GroupedMatMulOptions {
  readonly step: GPUBuffer
  readonly groups: GPUBuffer
  readonly pairsAt: number
  readonly pairTile: number
  readonly outStride: number
  readonly slotStride: number
  /** How many pairs share an input row: K for a token's row, 1 for a row per pair. */
  readonly pairsPerRow: number
  readonly maxTiles: (tokens: number) => number
  readonly label: string
}

/** The products of each expert with the rows of its tokens; weights in the slots of `pool`. The input is packed already. */
export async function groupedMatMulOp(
  gpu: GpuContext,
  pool: PoolBuffer,
  format: GpuFormat,
  cols: number,
  segments: readonly MatrixSegment[],
  input: ActivationBuffers,
  out: GPUBuffer,
  options: GroupedMatMulOptions,
): Promise<Op> {
  const fast = gpu.fast && format.bits < 16
  const [{ bias }] = segments
  const kernel = await gpu.kernels.get('matMul', {
    ...formatConstants(format),
    FAST: fast,
    GROUPED: true,
    SINGLE: segments.length === 1,
    ROWS,
    TOKENS: options.pairTile,
    TEAMS: 1,
    PAIRS_AT: options.pairsAt,
    ROWS_SHARE: options.pairsPerRow,
    ...(bias && { BIAS: true, ...floatConstants(bias) }),
  })
  const table = segmentTable(gpu.device, cols, segments, options.outStride, ROWS, options.slotStride)
  const rest = [table.buffer, options.step, fast ? input.packed : input.values, input.scales, out, options.groups]
  const group = rebound(pool, () => kernel.bind([pool.buffer, ...rest]))
  return (recorder, { tokens }) =>
    recorder.dispatch(kernel, group(), table.tiles, options.maxTiles(tokens), 1, options.label)
}
