// Weights as the reference kernels take them: quantized matrices stay packed, with scales and biases widened to float32;
// plain matrices and vectors are float32. Made from the bytes of model_weights.bin or of one expert's record.
import type { FloatType, Matrix, QuantBits, QuantGroup, Vector } from '../../model/tensors.js'

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

export interface PlainWeights {
  readonly kind: 'plain'
  readonly rows: number
  readonly cols: number
  readonly values: Float32Array // [rows, cols]
}

export type Weights = QuantizedWeights | PlainWeights

/** `bytes` holds what the matrix's ranges point into. */
export function loadMatrix(matrix: Matrix, bytes: Uint8Array): Weights {
  const { rows, cols } = matrix
  if (matrix.kind === 'plain')
    return { kind: 'plain', rows, cols, values: loadFloats(matrix.type, bytes, matrix.weight) }
  const { bits, group, scaleType } = matrix
  const packed = new Uint32Array(copyRange(bytes, matrix.weight))
  const scales = loadFloats(scaleType, bytes, matrix.scales)
  const biases = loadFloats(scaleType, bytes, matrix.biases)
  return { kind: 'quantized', rows, cols, bits, group, packed, scales, biases }
}

export function loadVector(vector: Vector, bytes: Uint8Array): Float32Array {
  return loadFloats(vector.type, bytes, vector.data)
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

/** The unsigned integers q of row `row`. */
export function unpackRow(weights: QuantizedWeights, row: number, out: Float32Array): Float32Array {
  const { cols, bits, packed } = weights
  const perWord = 32 / bits
  const mask = 2 ** bits - 1
  const first = (row * cols) / perWord
  let i = 0
  for (let word = first; i < cols; word++) {
    let q = packed[word]
    for (let n = 0; n < perWord; n++) {
      out[i++] = q & mask
      q >>>= bits
    }
  }
  return out
}

function loadFloats(type: FloatType, bytes: Uint8Array, range: { offset: number; size: number }): Float32Array {
  const data = copyRange(bytes, range)
  if (type === 'F32') return new Float32Array(data)
  return type === 'BF16' ? widenBf16(new Uint16Array(data)) : widenF16(new Uint16Array(data))
}

// A copy, because ranges need not lie at multiples of 4, and because a view would keep all the bytes alive.
function copyRange(bytes: Uint8Array, range: { offset: number; size: number }): ArrayBuffer {
  return bytes.slice(range.offset, range.offset + range.size).buffer as ArrayBuffer
}

function widenBf16(source: Uint16Array): Float32Array {
  const bits = new Uint32Array(source.length)
  for (let i = 0; i < source.length; i++) bits[i] = source[i] << 16
  return new Float32Array(bits.buffer)
}

function widenF16(source: Uint16Array): Float32Array {
  const out = new Float32Array(source.length)
  for (let i = 0; i < source.length; i++) {
    const sign = source[i] & 0x8000 ? -1 : 1
    const exponent = (source[i] >> 10) & 0x1f
    const fraction = source[i] & 0x3ff
    if (exponent === 0) out[i] = sign * fraction * 2 ** -24
    else if (exponent === 31) out[i] = fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY
    else out[i] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
  }
  return out
}
