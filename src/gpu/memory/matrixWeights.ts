// Resident weights on the GPU. Matrices that share an input are laid into one buffer per format, so that one dispatch
// can compute them all; what exceeds a binding is cut into parts of rows. Bytes are moved, never changed.
import { UnsupportedModelError } from '../../base/errors.js'
import type { ByteSource } from '../../files/source.js'
import { type BlockName, type BlockSpan, blockFormat } from '../../model/blockFormats.js'
import type { FloatType } from '../../model/floats.js'
import { FLOAT_BYTES } from '../../model/floats.js'
import type { Matrix } from '../../model/tensors.js'
import { bufferUsage } from '../device/gpuFlags.js'
import { createChecked } from '../device/gpuMemory.js'
import { storageBytes } from '../device/kernel.js'
import type { ShaderConstants } from '../device/shaderSource.js'
import type { StagedRead, WeightStaging } from './weightStaging.js'

/** What a kernel must be compiled for. `f16`: scales, or 16-bit weights, are F16 instead of BF16. */
export interface GpuFormat {
  readonly bits: 2 | 4 | 8 | 16 | 32
  readonly group: number // 32 for plain floats, where it means nothing
  readonly f16: boolean
  readonly block?: BlockName
  readonly span?: BlockSpan
}

/** One matrix or a range of its rows inside a buffer; all offsets in bytes. */
export interface MatrixSegment {
  readonly rows: number
  readonly weight: number
  readonly scales: number
  readonly biases: number
  readonly out: number // column of the output row where this segment's rows go
  readonly norm?: number // which of several norms its input goes through; the first where this is not given
  readonly bias?: SlotFloats // of an expert
}

/** Floats inside an expert's slot. */
export interface SlotFloats {
  readonly type: FloatType
  readonly offset: number // bytes from the slot's start
}

/** Shader constants of slotFloat.wgsl. */
export function floatConstants({ type }: Pick<SlotFloats, 'type'>): ShaderConstants {
  return { FLOAT_BITS: type === 'F32' ? 32 : 16, FLOAT_F16: type === 'F16' }
}

/** Where they lie, counted in floats. */
export function floatsAt({ type, offset }: SlotFloats): number {
  return offset / FLOAT_BYTES[type]
}

/** What one dispatch computes: up to six segments of one format in one buffer. */
export interface MatrixPart {
  readonly buffer: GPUBuffer
  readonly format: GpuFormat
  readonly cols: number
  readonly segments: readonly MatrixSegment[]
}

export interface MatrixAt {
  readonly matrix: Matrix
  readonly out: number
}

export const MAX_SEGMENTS = 6

export function formatOf(matrix: Matrix): GpuFormat {
  if (matrix.cols % 32 !== 0) {
    throw new UnsupportedModelError(matrix.name, matrix.cols, 'columns in a multiple of 32 for the webgpu backend')
  }
  if (matrix.kind === 'blocks') {
    const { bits, group } = blockFormat(matrix.block)
    return { bits, group, f16: true, block: matrix.block, span: matrix.span }
  }
  if (matrix.kind === 'quantized') {
    return { bits: matrix.bits, group: matrix.group, f16: matrix.scaleType === 'F16' }
  }
  return { bits: matrix.type === 'F32' ? 32 : 16, group: 32, f16: matrix.type === 'F16' }
}

/** Shader constants of a format. */
export function formatConstants(format: GpuFormat): Record<string, number | boolean> {
  const constants = { BITS: format.bits, GROUP: format.group, SCALE_F16: format.f16 }
  return format.block === undefined ? constants : { ...constants, ...blockConstants(format.block, format.span ?? 0) }
}

const SCALE_KINDS = { product: 0, F16: 1, E8M0: 2 }

function blockConstants(name: BlockName, span: BlockSpan): Record<string, number | boolean> {
  const { scale, hasMinima, offset, book } = blockFormat(name)
  const constants = { BLOCKS: true, SPAN: span, SCALES: SCALE_KINDS[scale], MINIMA: hasMinima, OFFSET: offset }
  if (book === null) return constants
  const [BOOK0, BOOK1, BOOK2, BOOK3] = new Uint32Array(book.slice().buffer)
  return { ...constants, BOOK: true, BOOK0, BOOK1, BOOK2, BOOK3 }
}

interface Piece {
  readonly matrix: Matrix
  readonly firstRow: number
  readonly rows: number
  readonly out: number
}

/** Reads the matrices into new buffers of at most `maxBytes`. */
export async function loadMatrices(
  device: GPUDevice,
  staging: WeightStaging,
  source: ByteSource,
  matrices: readonly MatrixAt[],
  maxBytes: number,
  signal?: AbortSignal,
  maxSegments = MAX_SEGMENTS,
): Promise<MatrixPart[]> {
  const parts: MatrixPart[] = []
  for (const pieces of planParts(matrices, maxBytes, maxSegments)) {
    const format = formatOf(pieces[0].matrix)
    const { size, segments, reads } = layPieces(pieces)
    const label = pieces.map(piece => piece.matrix.name).join(' ')
    const descriptor = { label, size, usage: bufferUsage.storage | bufferUsage.copyDst }
    const [buffer] = await createChecked(device, [descriptor], pieces[0].matrix.name)
    await staging.load(source, reads, buffer, signal)
    parts.push({ buffer, format, cols: pieces[0].matrix.cols, segments })
  }
  return parts
}

/** What the buffers of `loadMatrices` come to. */
export function matricesBytes(matrices: readonly MatrixAt[], maxBytes: number, maxSegments = MAX_SEGMENTS): number {
  return planParts(matrices, maxBytes, maxSegments).reduce((sum, pieces) => sum + layPieces(pieces).size, 0)
}

/** Where the pieces of a part lie in its buffer, and what is read to where. */
function layPieces(pieces: readonly Piece[]) {
  let size = 0
  const segments: MatrixSegment[] = []
  const reads: StagedRead[] = []
  const place = (from: number, bytes: number) => {
    const at = size
    reads.push({ from, at, size: bytes })
    size = align(size + bytes)
    return at
  }
  for (const { matrix, firstRow, rows, out } of pieces) {
    const { weightBytes, scaleBytes } = rowBytes(matrix)
    const weight = place(matrix.weight.offset + firstRow * weightBytes, rows * weightBytes)
    let scales = 0
    let biases = 0
    if (matrix.kind !== 'plain') scales = place(matrix.scales.offset + firstRow * scaleBytes, rows * scaleBytes)
    if (matrix.kind === 'quantized') {
      biases = place(matrix.biases.offset + firstRow * scaleBytes, rows * scaleBytes)
    }
    segments.push({ rows, weight, scales, biases, out })
  }
  return { size, segments, reads }
}

/** Which matrices or rows go together: one format, one width, at most so many, within the limit. */
export function planParts(matrices: readonly MatrixAt[], maxBytes: number, maxSegments: number): Piece[][] {
  const open = new Map<string, { pieces: Piece[]; bytes: number }>()
  const done: Piece[][] = []
  for (const { matrix, out } of matrices) {
    const key = `${JSON.stringify(formatOf(matrix))} ${matrix.cols}`
    const { weightBytes, scaleBytes } = rowBytes(matrix)
    const perRow = weightBytes + (matrix.kind === 'quantized' ? 2 : 1) * scaleBytes
    const maxRows = Math.max(1, Math.floor((maxBytes - 3 * 256) / perRow))
    for (let firstRow = 0; firstRow < matrix.rows; firstRow += maxRows) {
      const rows = Math.min(maxRows, matrix.rows - firstRow)
      const piece = { matrix, firstRow, rows, out: out + firstRow }
      const bytes = rows * perRow + 3 * 256
      const part = open.get(key)
      if (part !== undefined && part.bytes + bytes <= maxBytes && part.pieces.length < maxSegments) {
        part.pieces.push(piece)
        part.bytes += bytes
      } else {
        const pieces = [piece]
        open.set(key, { pieces, bytes })
        done.push(pieces)
      }
    }
  }
  return done
}

export function floatBuffer(device: GPUDevice, values: Float32Array, label: string): GPUBuffer {
  const buffer = device.createBuffer({
    label,
    size: storageBytes(values.byteLength),
    usage: bufferUsage.storage,
    mappedAtCreation: true,
  })
  new Float32Array(buffer.getMappedRange()).set(values)
  buffer.unmap()
  return buffer
}

function rowBytes(matrix: Matrix): { weightBytes: number; scaleBytes: number } {
  const { bits } = formatOf(matrix)
  return {
    weightBytes: (matrix.cols * bits) / 8,
    scaleBytes: matrix.kind === 'plain' ? 0 : matrix.scales.size / matrix.rows,
  }
}

function align(bytes: number): number {
  return Math.ceil(bytes / 256) * 256
}
