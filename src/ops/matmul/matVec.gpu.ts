// Matrix products for single tokens: the decode kernel, for resident matrices and for the experts of a token.
import { type GpuContext, teamSize } from '../../gpu/device/gpuContext.js'
import { uniformBuffer } from '../../gpu/device/kernel.js'
import { type Op, rebound, sequence } from '../../gpu/device/op.js'
import type { ShaderConstants } from '../../gpu/device/shaderSource.js'
import {
  floatConstants,
  formatConstants,
  type GpuFormat,
  type MatrixPart,
  type MatrixSegment,
} from '../../gpu/memory/matrixWeights.js'
import type { PoolBuffer } from '../../gpu/memory/slotPools.js'
import type { Activation } from '../../model/layers.js'
import { gluConstants } from '../activation/swiGlu.gpu.js'
import { segmentTable } from './segments.gpu.js'

/** Constants of the mat-vec kernels that decide who computes what. */
export interface VecShape {
  readonly WG: number
  readonly TEAM: number
  readonly ROWS: number
  readonly BLOCK: number
  readonly DEPTH: number // units of a row whose weights a thread loads at once
  readonly STAGERS: number // threads that bring a unit of the input together
}

/** `rows`: of all workgroups together; `cols`: of the whole input. */
export function vecShape(gpu: GpuContext, format: GpuFormat, rows: number, cols: number, fast: boolean): VecShape {
  const TEAM = teamSize(gpu)
  let WG = Math.max(gpu.tuning.WG, TEAM)
  let { ROWS } = gpu.tuning
  const { WORKGROUPS } = gpu.tuning
  const workgroups = () => rows / ((WG / TEAM) * ROWS)
  while (ROWS > 1 && workgroups() < WORKGROUPS) ROWS /= 2
  while (WG > Math.max(64, TEAM) && workgroups() < WORKGROUPS) WG /= 2
  // 16 KiB of workgroup memory: packed inputs take 1.25 bytes per column, float32 ones a little over 4.
  const BLOCK = Math.min(cols, fast ? 8192 : 2048)
  const turns = Math.ceil(BLOCK / 32 / TEAM)
  const DEPTH = Math.max(1, Math.min(turns - 1, Math.floor(gpu.tuning.LOADS / ROWS)))
  // Two bits of 16 columns are a word: no quarter of a unit is packed alone.
  const STAGERS = fast && gpu.subgroups !== null && format.bits > 2 ? 4 : 1
  return { WG, TEAM, ROWS, BLOCK, DEPTH, STAGERS }
}

export interface MatVecOptions {
  readonly status: GPUBuffer
  readonly outStride: number
  /** RMS norm of the input first. */
  readonly norm?: { readonly weight: GPUBuffer; readonly eps: number }
  /** The input rows are [gate | up]. */
  readonly activation?: Activation
  /** Added by column of the output row. */
  readonly bias?: GPUBuffer | null // [outStride]
  readonly add?: boolean
  readonly exact?: boolean
  readonly label: string
}

/** How a product with experts makes the router's choice by itself. */
export interface OwnChoice {
  readonly constants: ShaderConstants // of routerChoice.wgsl
  readonly logits: GPUBuffer
  readonly slotTable: GPUBuffer
  readonly selectionBias: GPUBuffer | null
  readonly choice: GPUBuffer // [layers, MAX_TOKENS, K]
  readonly layer: number
  readonly sharedSlot: number | null
}

/** x [tokens, cols] (or [tokens, 2 * cols]) -> y [tokens, outStride] */
export async function matVecOp(
  gpu: GpuContext,
  parts: readonly MatrixPart[],
  x: GPUBuffer,
  y: GPUBuffer,
  options: MatVecOptions,
): Promise<Op> {
  const { bias = null } = options
  const ops = parts.map(async (part): Promise<Op> => {
    const fast = gpu.fast && !options.exact && part.format.bits < 16
    const rows = part.segments.reduce((sum, segment) => sum + segment.rows, 0)
    const shape = vecShape(gpu, part.format, rows, part.cols, fast)
    const kernel = await gpu.kernels.get('matVec', {
      ...constantsOf(part.format, fast, shape, options, 0),
      SINGLE: part.segments.length === 1,
      ...(bias === null ? {} : { BIAS: true, ...floatConstants({ type: 'F32' }) }),
    })
    const rowsPerTile = (shape.WG / shape.TEAM) * shape.ROWS
    const table = segmentTable(gpu.device, part.cols, part.segments, options.outStride, rowsPerTile)
    const norm = options.norm?.weight ?? options.status
    const group = kernel.bind([part.buffer, part.buffer, table.buffer, options.status, x, norm, y, bias])
    return (recorder, { tokens }) => recorder.dispatch(kernel, group, tokens, table.tiles, 1, options.label)
  })
  return sequence(await Promise.all(ops))
}

export interface ExpertProduct {
  /** Where experts lie, `slotStride` words apart. */
  readonly pool: PoolBuffer
  readonly slotStride: number
  readonly format: GpuFormat
  readonly cols: number
  readonly segments: readonly MatrixSegment[]
  readonly x: GPUBuffer // [tokens, cols]
  readonly y: GPUBuffer // [tokens, k, outStride]
  /** The `k` experts of each token: read from here, or written where `own` says how they are chosen. */
  readonly mixing: GPUBuffer
  readonly k: number
  readonly own: OwnChoice | null
}

/** The experts of each token: y = W x. */
export async function expertMatVecOp(
  gpu: GpuContext,
  { pool, slotStride, format, cols, segments, x, y, mixing, k, own }: ExpertProduct,
  options: MatVecOptions,
): Promise<Op> {
  const fast = gpu.fast && format.bits < 16
  const rows = segments.reduce((sum, segment) => sum + segment.rows, 0)
  const shape = vecShape(gpu, format, rows * k, cols, fast)
  const [{ bias }] = segments
  const kernel = await gpu.kernels.get('matVec', {
    ...constantsOf(format, fast, shape, options, k),
    SINGLE: segments.length === 1,
    ...(bias && { BIAS: true, ...floatConstants(bias) }),
    ...(own && { CHOOSE: true, ...own.constants }),
  })
  const rowsPerTile = (shape.WG / shape.TEAM) * shape.ROWS
  const table = segmentTable(gpu.device, cols, segments, options.outStride, rowsPerTile, slotStride)
  const norm = options.norm?.weight ?? options.status
  const which = own && uniformBuffer(gpu.device, [own.layer, own.sharedSlot ?? 0], 'layer')
  const chooses = own === null ? [] : [own.logits, own.slotTable, own.selectionBias, own.choice, which]
  const group = rebound(pool, () => {
    const { buffer } = pool
    const status = own === null ? options.status : null
    return kernel.bind([buffer, buffer, table.buffer, status, x, norm, y, mixing, ...chooses])
  })
  return (recorder, { tokens }) => recorder.dispatch(kernel, group(), table.tiles, k, tokens, options.label)
}

function constantsOf(format: GpuFormat, fast: boolean, shape: VecShape, options: MatVecOptions, k: number) {
  return {
    ...formatConstants(format),
    ...shape,
    ...(options.activation && gluConstants(options.activation)),
    FAST: fast,
    NORM: options.norm !== undefined,
    EPS: options.norm?.eps ?? 0.5,
    SWIGLU: options.activation !== undefined,
    ADD: options.add ?? false,
    RANKS: k,
  }
}
