// Matrix products for many tokens on a GPU's matrix units: resident matrices of 4 bits in affine groups, in fast precision. Inputs
// are half floats (halfRows.gpu.ts).
import type { GpuContext } from '../../gpu/device/gpuContext.js'
import type { Op } from '../../gpu/device/op.js'
import type { ActivationBuffers } from '../../gpu/memory/activationBuffers.js'
import { formatConstants, type MatrixPart } from '../../gpu/memory/matrixWeights.js'
import { segmentTable } from './segments.gpu.js'

const STAGE_COLS = 64

/** How a tile is shared out: subgroups by tokens and rows, matrices of 16 x 16 of each. */
interface Tile {
  readonly SUB_TOKENS: number
  readonly SUB_ROWS: number
  readonly FRAG_TOKENS: number
  readonly FRAG_ROWS: number
}

/** From large to small: small ones read more, and reach more of the GPU. With how many workgroups one is large enough. */
const TILES: readonly { readonly tile: Tile; readonly least: number }[] = [
  { tile: { SUB_TOKENS: 4, SUB_ROWS: 2, FRAG_TOKENS: 2, FRAG_ROWS: 4 }, least: 90 }, // 128 x 128
  { tile: { SUB_TOKENS: 2, SUB_ROWS: 2, FRAG_TOKENS: 2, FRAG_ROWS: 2 }, least: 100 }, // 64 x 64
  { tile: { SUB_TOKENS: 2, SUB_ROWS: 2, FRAG_TOKENS: 1, FRAG_ROWS: 2 }, least: 0 }, // 32 x 64
]
const MOST_TOKENS = 128 // of a tile

const tokensOf = ({ SUB_TOKENS, FRAG_TOKENS }: Tile) => SUB_TOKENS * FRAG_TOKENS * 16
const rowsOf = ({ SUB_ROWS, FRAG_ROWS }: Tile) => SUB_ROWS * FRAG_ROWS * 16

/**
 * Whether a matrix goes there; the answer is the same as long as a model is open. A thread brings eight scales at a time, and tiles
 * end where buffers do.
 */
export function isForTensors(gpu: GpuContext, { format, cols }: MatrixPart, maxTokens: number): boolean {
  const { bits, group, block } = format
  const isApt = bits === 4 && block === undefined && cols % (8 * group) === 0
  return gpu.tensors && gpu.fast && isApt && maxTokens % MOST_TOKENS === 0
}

/** halves [tokens, cols] -> out [tokens, outStride], up to a multiple of a tile's tokens. Results do not depend on the tile. */
export async function tensorMulOp(
  gpu: GpuContext,
  part: MatrixPart,
  { packed }: ActivationBuffers,
  out: GPUBuffer,
  options: { readonly maxTokens: number; readonly outStride: number; readonly label: string },
): Promise<Op> {
  const { segments } = part
  const workgroups = (tile: Tile, tokens: number) =>
    segments.reduce((sum, { rows }) => sum + Math.ceil(rows / rowsOf(tile)), 0) * Math.ceil(tokens / tokensOf(tile))
  const best = (tokens: number) => TILES.findIndex(({ tile, least }) => workgroups(tile, tokens) >= least)
  // More tokens never want a smaller tile.
  const largest = best(options.maxTokens)
  const ways = await Promise.all(
    TILES.map(({ tile }, i) => (i < largest ? null : tiledOp(gpu, part, packed, out, tile, options))),
  )
  return (recorder, size) => ways[best(size.tokens)]?.(recorder, size)
}

async function tiledOp(
  gpu: GpuContext,
  { format, segments, cols, buffer }: MatrixPart,
  packed: GPUBuffer,
  out: GPUBuffer,
  tile: Tile,
  { outStride, label }: { readonly outStride: number; readonly label: string },
): Promise<Op> {
  const threads = 32 * tile.SUB_TOKENS * tile.SUB_ROWS
  const kernel = await gpu.kernels.get('tensorMul', {
    TENSOR: true,
    ...formatConstants(format),
    SINGLE: segments.length === 1,
    ...tile,
    ROW_TASKS: (rowsOf(tile) * STAGE_COLS) / 32 / threads, // units that a thread brings per stage
    TOKEN_TASKS: (tokensOf(tile) * STAGE_COLS) / 8 / threads,
  })
  const table = segmentTable(gpu.device, cols, segments, outStride, rowsOf(tile))
  const group = kernel.bind([buffer, table.buffer, packed, out])
  return (recorder, { tokens }) =>
    recorder.dispatch(kernel, group, table.tiles, Math.ceil(tokens / tokensOf(tile)), 1, label)
}
