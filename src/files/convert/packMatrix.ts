// Turns a source matrix into the bytes of its packed form, a block of rows at a time: moved as they are, narrowed, or
// quantized on the way. Memory stays at a few blocks however large the matrix is.
import { TensorError } from '../../base/errors.js'
import { blockFormat, blockSizes, dequantizeBlocks, firstBrokenScale } from '../../model/blockFormats.js'
import type { MatrixFormat } from '../../model/expertLayout.js'
import { FLOAT_BYTES, findNonFinite, narrowToBfloat16, widenFloats } from '../../model/floats.js'
import { dequantizeRows, quantizedSizes, quantizeRows } from '../../model/quantize.js'
import { type ReadRows, rowReader } from './rowReader.js'
import type { Slice, SourceMatrix } from './sourceMatrix.js'

const BLOCK_ELEMENTS = 2 ** 21

/** Buffers that live as long as a conversion: thousands of matrices pass through the same few. */
export class PackScratch {
  private readonly buffers = new Map<string, ArrayBuffer>()

  /** A buffer of at least this size. What it held under this purpose before is gone. */
  get(purpose: string, size: number): ArrayBuffer {
    let buffer = this.buffers.get(purpose)
    if (buffer === undefined || buffer.byteLength < size) {
      buffer = new ArrayBuffer(size)
      this.buffers.set(purpose, buffer)
    }
    return buffer
  }
}

/** Some rows in packed form. Views into buffers that the next block overwrites. */
export interface PackedRows {
  readonly weight: Uint8Array
  readonly scales: Uint8Array // empty for plain matrices
  readonly biases: Uint8Array
}

const NONE = new Uint8Array(0)

export async function* packMatrix(
  source: SourceMatrix,
  format: MatrixFormat,
  scratch: PackScratch,
  signal?: AbortSignal,
): AsyncGenerator<PackedRows> {
  const { rows, cols } = source
  const blockRows = Math.max(1, Math.min(rows, Math.floor(BLOCK_ELEMENTS / cols)))
  const pack = sameFormat(source, format)
    ? mover(source, blockRows, scratch)
    : converter(source, format, blockRows, scratch)
  for (let row = 0; row < rows; row += blockRows) {
    signal?.throwIfAborted()
    yield await pack(row, Math.min(blockRows, rows - row), signal)
  }
}

type PackBlock = (row: number, count: number, signal?: AbortSignal) => Promise<PackedRows>

function sameFormat(source: SourceMatrix, format: MatrixFormat): boolean {
  if (source.kind === 'plain') return format.kind === 'plain' && format.type === source.type
  if (source.kind === 'blocks') {
    return format.kind === 'blocks' && format.block === source.block && format.span === source.span
  }
  return (
    format.kind === 'quantized' &&
    format.bits === source.bits &&
    format.group === source.group &&
    format.scaleType === source.scaleType
  )
}

function mover(source: SourceMatrix, blockRows: number, scratch: PackScratch): PackBlock {
  const read = reader(source, blockRows, scratch)
  return async (row, count, signal) => {
    const block = await read(row, count, signal)
    if (source.kind === 'quantized') {
      checkFinite(source, block.scales, row, 'scale')
      checkFinite(source, block.biases, row, 'bias')
    } else if (source.kind === 'blocks') checkBlockScales(source, block.scales, row)
    return block
  }
}

function converter(source: SourceMatrix, format: MatrixFormat, blockRows: number, scratch: PackScratch): PackBlock {
  const { cols } = source
  const read = reader(source, blockRows, scratch)
  const values = new Float32Array(scratch.get('values', blockRows * cols * 4), 0, blockRows * cols)
  const readFloats = async (row: number, count: number, signal?: AbortSignal): Promise<Float32Array> => {
    const block = await read(row, count, signal)
    const out = values.subarray(0, count * cols)
    if (source.kind === 'plain') widenFloats(source.type, block.weight, out)
    else if (source.kind === 'blocks') {
      dequantizeBlocks(blockFormat(source.block), source.span, block.weight, block.scales, out)
    } else dequantizeRows({ ...block, scaleType: source.scaleType }, source.bits, source.group, out)
    return out
  }
  if (format.kind === 'blocks') {
    throw new TensorError(source.name, `cannot be stored as ${format.block}`, source.weight.source.name)
  }
  if (format.kind === 'plain') {
    if (format.type !== 'BF16')
      throw new TensorError(source.name, `cannot be stored as ${format.type}`, source.weight.source.name)
    const narrow = new Uint16Array(scratch.get('narrow', blockRows * cols * 2), 0, blockRows * cols)
    return async (row, count, signal) => {
      narrowToBfloat16(await readFloats(row, count, signal), narrow)
      return { weight: new Uint8Array(narrow.buffer, 0, count * cols * 2), scales: NONE, biases: NONE }
    }
  }
  const { bits, group } = format
  const full = quantizedSizes(blockRows, cols, bits, group)
  const out = {
    weight: new Uint32Array(scratch.get('weight', full.weight)),
    scales: new Uint16Array(scratch.get('scales', full.scales)),
    biases: new Uint16Array(scratch.get('biases', full.biases)),
  }
  return async (row, count, signal) => {
    const badGroup = quantizeRows(await readFloats(row, count, signal), bits, group, out)
    if (badGroup >= 0) {
      const badRow = row + Math.floor((badGroup * group) / cols)
      const detail = `row ${badRow} holds NaN, infinity or values too large to quantize`
      throw new TensorError(source.name, detail, source.weight.source.name)
    }
    const sizes = quantizedSizes(count, cols, bits, group)
    return {
      weight: new Uint8Array(out.weight.buffer, 0, sizes.weight),
      scales: new Uint8Array(out.scales.buffer, 0, sizes.scales),
      biases: new Uint8Array(out.biases.buffer, 0, sizes.biases),
    }
  }
}

/** Reads rows as they are stored. */
function reader(source: SourceMatrix, blockRows: number, scratch: PackScratch): PackBlock {
  const { cols, rowOf } = source
  const rows = (slice: Slice, purpose: string, rowBytes: number) =>
    rowReader(slice, rowBytes, scratch.get(`source ${purpose}`, rowBytes * blockRows), rowOf)
  if (source.kind === 'plain') {
    const rowBytes = cols * FLOAT_BYTES[source.type]
    const weight =
      source.inputFirst === undefined
        ? rows(source.weight, 'weight', rowBytes)
        : columnReader(source, source.inputFirst, scratch.get('source weight', rowBytes * blockRows))
    return async (row, count, signal) => ({ weight: await weight(row, count, signal), scales: NONE, biases: NONE })
  }
  if (source.kind === 'blocks') {
    const perRow = blockSizes(1, cols, blockFormat(source.block), source.span)
    const weight = rows(source.weight, 'weight', perRow.weight)
    const scales = rows(source.scales, 'scales', perRow.scales)
    return async (row, count, signal) => ({
      weight: await weight(row, count, signal),
      scales: await scales(row, count, signal),
      biases: NONE,
    })
  }
  const perRow = quantizedSizes(1, cols, source.bits, source.group)
  const weight = rows(source.weight, 'weight', perRow.weight)
  const scales = rows(source.scales, 'scales', perRow.scales)
  const biases = rows(source.biases, 'biases', perRow.biases)
  return async (row, count, signal) => ({
    weight: await weight(row, count, signal),
    scales: await scales(row, count, signal),
    biases: await biases(row, count, signal),
  })
}

/** Rows that are columns of the source [cols, width]: all of it is read, for every block of rows. */
function columnReader(source: SourceMatrix & { kind: 'plain' }, width: number, buffer: ArrayBuffer): ReadRows {
  const { cols, weight, rowOf = (row: number) => row } = source
  const bytes = FLOAT_BYTES[source.type]
  const input = new Uint8Array(width * bytes)
  return async (row, count, signal) => {
    const target = new Uint8Array(buffer, 0, count * cols * bytes)
    for (let col = 0; col < cols; col++) {
      await weight.source.read(weight.offset + col * width * bytes, input, signal)
      for (let i = 0; i < count; i++) {
        const from = rowOf(row + i) * bytes
        for (let b = 0; b < bytes; b++) target[(i * cols + col) * bytes + b] = input[from + b]
      }
    }
    return target
  }
}

function checkFinite(source: SourceMatrix, bytes: Uint8Array, row: number, what: string): void {
  if (source.kind !== 'quantized') return
  const index = findNonFinite(source.scaleType, bytes)
  if (index < 0) return
  const badRow = row + Math.floor(index / (source.cols / source.group))
  throw new TensorError(source.name, `a ${what} of row ${badRow} is NaN or infinite`, source.weight.source.name)
}

function checkBlockScales(source: SourceMatrix & { kind: 'blocks' }, bytes: Uint8Array, row: number): void {
  const broken = firstBrokenScale(blockFormat(source.block), source.span, bytes)
  if (broken < 0) return
  const perRow = blockSizes(1, source.cols, blockFormat(source.block), source.span).scales
  const badRow = row + Math.floor(broken / perRow)
  throw new TensorError(source.name, `a scale of row ${badRow} is NaN or infinite`, source.weight.source.name)
}
