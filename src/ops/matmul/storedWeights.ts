// Weights as the reference kernels take them: quantized matrices stay packed, with scales and biases widened to float32;
// plain matrices and vectors are float32. Made from the bytes of model_weights.bin or of one expert's record.
import type { ByteSource } from '../../files/source.js'
import { type BlockFormat, blockFormat, unpackBlockCodes, widenBlockScales } from '../../model/blockFormats.js'
import { FLOAT_BYTES, type FloatType, widenFloats } from '../../model/floats.js'
import { matrixParts } from '../../model/tensorParts.js'
import type { ByteRange, Matrix, QuantBits, QuantGroup, Vector } from '../../model/tensors.js'

export interface QuantizedWeights {
  readonly kind: 'quantized'
  readonly rows: number
  readonly cols: number
  readonly bits: QuantBits
  readonly group: QuantGroup
  readonly packed: Uint32Array // [rows, cols * bits / 32], element i of a word at bits i * bits
  readonly scales: Float32Array // [rows, cols / group]
  readonly biases: Float32Array // [rows, cols / group]
}

export interface BlockWeights {
  readonly kind: 'blocks'
  readonly rows: number
  readonly cols: number
  readonly group: number
  readonly format: BlockFormat
  readonly packed: Uint8Array // [rows, cols * bits / 8]
  readonly scales: Float32Array // [rows, cols / group]
  readonly biases: Float32Array // [rows, cols / group]: minima, negative
}

export interface PlainWeights {
  readonly kind: 'plain'
  readonly rows: number
  readonly cols: number
  readonly values: Float32Array // [rows, cols]
}

export type Weights = QuantizedWeights | BlockWeights | PlainWeights

/** Reads the matrix's ranges from model_weights.bin. */
export async function readMatrix(matrix: Matrix, source: ByteSource, signal?: AbortSignal): Promise<Weights> {
  return makeWeights(matrix, await Promise.all(matrixParts(matrix).map(range => readRange(source, range, signal))))
}

/** Takes the matrix's ranges out of an expert's record. */
export function sliceMatrix(matrix: Matrix, record: Uint8Array): Weights {
  // Copies: ranges need not lie at multiples of 4.
  const parts = matrixParts(matrix).map(({ offset, size }) => record.slice(offset, offset + size))
  return makeWeights(matrix, parts)
}

/** Takes the floats of a vector out of an expert's record. */
export function sliceVector({ type, data }: Vector, record: Uint8Array): Float32Array {
  return widen(type, record.slice(data.offset, data.offset + data.size))
}

export async function readVector(vector: Vector, source: ByteSource, signal?: AbortSignal): Promise<Float32Array> {
  return widen(vector.type, await readRange(source, vector.data, signal))
}

async function readRange(source: ByteSource, range: ByteRange, signal?: AbortSignal): Promise<Uint8Array> {
  const bytes = new Uint8Array(range.size)
  await source.read(range.offset, bytes, signal)
  return bytes
}

function makeWeights(matrix: Matrix, parts: readonly Uint8Array[]): Weights {
  const { rows, cols } = matrix
  if (matrix.kind === 'plain') return { kind: 'plain', rows, cols, values: widen(matrix.type, parts[0]) }
  if (matrix.kind === 'blocks') {
    const format = blockFormat(matrix.block)
    const { group } = format
    const { scales, minima } = widenBlockScales(format, matrix.span, parts[1], (rows * cols) / group)
    const biases = format.hasMinima ? minima.map(value => -value) : new Float32Array(scales.length)
    return { kind: 'blocks', rows, cols, group, format, packed: parts[0], scales, biases }
  }
  const { bits, group, scaleType } = matrix
  const packed = new Uint32Array(parts[0].buffer as ArrayBuffer)
  return {
    kind: 'quantized',
    rows,
    cols,
    bits,
    group,
    packed,
    scales: widen(scaleType, parts[1]),
    biases: widen(scaleType, parts[2]),
  }
}

/** Row `row` in float32: w = scale * q + bias. */
export function dequantizeRow(weights: Weights, row: number, out = new Float32Array(weights.cols)): Float32Array {
  const { cols } = weights
  if (weights.kind === 'plain') {
    out.set(weights.values.subarray(row * cols, (row + 1) * cols))
    return out
  }
  const { group, scales, biases } = weights
  unpackRow(weights, row, out)
  const groups = cols / group
  for (let i = 0; i < cols; i++) {
    const g = row * groups + Math.floor(i / group)
    out[i] = Math.fround(scales[g] * out[i]) + biases[g]
  }
  return out
}

/** What scales multiply in row `row`: unsigned integers, or the codes of blocks. */
export function unpackRow<T extends Float32Array | Float64Array>(
  weights: QuantizedWeights | BlockWeights,
  row: number,
  out: T,
): T {
  if (weights.kind === 'blocks') {
    const rowBytes = (weights.cols * weights.format.bits) / 8
    return unpackBlockCodes(weights.format, weights.packed.subarray(row * rowBytes, (row + 1) * rowBytes), out)
  }
  const { cols, bits, packed } = weights
  const bytes = new Uint8Array(packed.buffer, packed.byteOffset + (row * cols * bits) / 8, (cols * bits) / 8)
  if (bits === 8) out.set(bytes)
  else if (bits === 4) {
    for (let i = 0; i < bytes.length; i++) {
      out[2 * i] = bytes[i] & 15
      out[2 * i + 1] = bytes[i] >> 4
    }
  } else {
    for (let i = 0; i < bytes.length; i++) {
      for (let n = 0; n < 4; n++) out[4 * i + n] = (bytes[i] >> (2 * n)) & 3
    }
  }
  return out
}

function widen(type: FloatType, bytes: Uint8Array): Float32Array {
  const out = new Float32Array(bytes.length / FLOAT_BYTES[type])
  widenFloats(type, bytes, out)
  return out
}
