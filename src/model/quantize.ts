// Affine quantization in MLX's layout: a row is cut into groups, each with a scale s and a bias b, and w = s * q + b
// with q unsigned of 2, 4 or 8 bits, packed into 32-bit words from the low bits up. Works on whole rows in memory; where
// the rows come from and go to is the caller's business.
import { asUint16, asUint32, bfloat16ToFloat32, float16ToFloat32, float32ToBfloat16, roundHalfEven } from './floats.js'
import type { QuantBits, QuantGroup } from './tensors.js'

export const QUANT_BITS: readonly QuantBits[] = [2, 4, 8]
export const QUANT_GROUPS: readonly QuantGroup[] = [32, 64, 128]

export interface QuantizedSizes {
  readonly weight: number // bytes
  readonly scales: number // bytes
  readonly biases: number // bytes
}

/** Bytes of the three parts of a quantized matrix [rows, cols]. */
export function quantizedSizes(rows: number, cols: number, bits: QuantBits, group: QuantGroup): QuantizedSizes {
  if (cols % group !== 0) throw new RangeError(`${cols} columns are not a multiple of the group of ${group}`)
  const scales = rows * (cols / group) * 2
  return { weight: (rows * cols * bits) / 8, scales, biases: scales }
}

/** The three parts of quantized rows. Scales and biases are BF16 bits. */
export interface QuantizedRows {
  readonly weight: Uint32Array // [rows, cols * bits / 32]
  readonly scales: Uint16Array // [rows, cols / group]
  readonly biases: Uint16Array // [rows, cols / group]
}

export function allocateQuantizedRows(rows: number, cols: number, bits: QuantBits, group: QuantGroup): QuantizedRows {
  const sizes = quantizedSizes(rows, cols, bits, group)
  return {
    weight: new Uint32Array(sizes.weight / 4),
    scales: new Uint16Array(sizes.scales / 2),
    biases: new Uint16Array(sizes.biases / 2),
  }
}

/**
 * Quantizes whole rows, every step in float32. Returns the index of the first group that has no finite scale (a NaN or
 * an infinity among its weights, or weights near the float's limit), or -1 when all is well.
 */
export function quantizeRows(
  values: Float32Array, // [rows, cols]; since a group never crosses a row, a flat run of groups
  bits: QuantBits,
  group: QuantGroup,
  out: QuantizedRows,
): number {
  const { weight, scales, biases } = out
  const levels = 2 ** bits - 1
  const perWord = 32 / bits
  const groups = values.length / group
  const wordsPerGroup = group / perWord
  for (let g = 0; g < groups; g++) {
    const start = g * group
    let hi = values[start]
    let lo = hi
    for (let i = start + 1; i < start + group; i++) {
      const w = values[i]
      if (w > hi) hi = w
      if (w < lo) lo = w
    }
    // A NaN hides from the comparisons above, but not from what it leaves: it is found when q comes out as NaN.
    const [scale, bias] = scaleAndBias(hi, lo, levels)
    const sBits = float32ToBfloat16(scale)
    const bBits = float32ToBfloat16(bias)
    const s = bfloat16ToFloat32(sBits)
    const b = bfloat16ToFloat32(bBits)
    if (!(Math.abs(s) > 0 && Math.abs(s) < Infinity && Math.abs(b) < Infinity)) return g
    scales[g] = sBits
    biases[g] = bBits
    let at = start
    for (let k = 0; k < wordsPerGroup; k++) {
      let packed = 0
      for (let shift = 0; shift < 32; shift += bits) {
        const q = Math.fround(Math.fround(values[at++] - b) / s) + 6755399441055744 - 6755399441055744
        if (Number.isNaN(q)) return g
        packed |= Math.min(Math.max(q, 0), levels) << shift
      }
      weight[g * wordsPerGroup + k] = packed
    }
  }
  return -1
}

function scaleAndBias(hi: number, lo: number, levels: number): [number, number] {
  const f = Math.fround
  let s = Math.max(f(f(hi - lo) / levels), f(1e-7))
  let edge = lo
  if (!(Math.abs(lo) > Math.abs(hi))) {
    s = -s
    edge = hi
  }
  const q0 = roundHalfEven(f(edge / s))
  return q0 !== 0 ? [f(edge / q0), edge] : [s, 0]
}

/** One quantized part in bytes, as it lies in a file. */
export interface QuantizedBytes {
  readonly weight: Uint8Array // U32 [rows, cols * bits / 32]
  readonly scales: Uint8Array // [rows, cols / group]
  readonly biases: Uint8Array // [rows, cols / group]
  readonly scaleType: 'BF16' | 'F16'
}

/** w = s * q + b, exact in float32: the product of a 16-bit float and at most 8 bits has no rounding. */
export function dequantizeRows(
  rows: QuantizedBytes,
  bits: QuantBits,
  group: QuantGroup,
  out: Float32Array, // [rows, cols]
): void {
  const weight = asUint32(rows.weight)
  const scales = asUint16(rows.scales)
  const biases = asUint16(rows.biases)
  const widen = rows.scaleType === 'BF16' ? bfloat16ToFloat32 : float16ToFloat32
  const mask = 2 ** bits - 1
  const wordsPerGroup = (group * bits) / 32
  let at = 0
  for (let g = 0; g < scales.length; g++) {
    const s = widen(scales[g])
    const b = widen(biases[g])
    for (let k = 0; k < wordsPerGroup; k++) {
      const packed = weight[g * wordsPerGroup + k]
      for (let shift = 0; shift < 32; shift += bits) out[at++] = s * ((packed >>> shift) & mask) + b
    }
  }
}
