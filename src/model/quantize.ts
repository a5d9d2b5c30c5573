// Affine quantization in MLX's layout: a row is cut into groups, each with a scale s and a bias b, and w = s * q + b
// with q unsigned of 2, 4 or 8 bits, packed into 32-bit words from the low bits up. Works on whole rows in memory; where
// the rows come from and go to is the caller's business.
import { asUint16, asUint32, bfloat16ToFloat32, float16ToFloat32, float32ToBfloat16, roundHalfEven } from './floats.js'
import type { QuantBits, QuantGroup } from './tensors.js'

export const QUANT_BITS: readonly QuantBits[] = [2, 4, 8]
export const QUANT_GROUPS: readonly QuantGroup[] = [32, 64, 128]

/** Adding 1.5 * 2^52 and taking it away again rounds a double half to even. */
const ROUNDER = 6755399441055744

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
  const f = Math.fround
  const levels = 2 ** bits - 1
  const smallest = f(1e-7)
  const groups = values.length / group
  const wordsPerGroup = (group * bits) / 32
  const q = new Int32Array(group)
  for (let g = 0; g < groups; g++) {
    const start = g * group
    let hi = values[start]
    let lo = hi
    for (let i = start + 1; i < start + group; i++) {
      const w = values[i]
      if (w > hi) hi = w
      if (w < lo) lo = w
    }
    let scale = Math.max(f(f(hi - lo) / levels), smallest)
    let bias = lo
    if (!(Math.abs(lo) > Math.abs(hi))) {
      scale = -scale
      bias = hi
    }
    const q0 = roundHalfEven(f(bias / scale))
    if (q0 !== 0) scale = f(bias / q0)
    else bias = 0
    const scaleBits = float32ToBfloat16(scale)
    const biasBits = float32ToBfloat16(bias)
    const s = bfloat16ToFloat32(scaleBits)
    const b = bfloat16ToFloat32(biasBits)
    if (!(Math.abs(s) > 0 && Math.abs(s) < Infinity && Math.abs(b) < Infinity)) return g
    scales[g] = scaleBits
    biases[g] = biasBits
    for (let i = 0; i < group; i++) {
      const x = f(f(values[start + i] - b) / s)
      if (x >= 0 && x < levels) q[i] = x + ROUNDER - ROUNDER
      else if (x >= levels) q[i] = levels
      else if (x < 0) q[i] = 0
      else return g // a NaN hides from the comparisons that found hi and lo, but ends here
    }
    let next = 0
    for (let k = 0; k < wordsPerGroup; k++) {
      let packed = 0
      for (let shift = 0; shift < 32; shift += bits) packed |= q[next++] << shift
      weight[g * wordsPerGroup + k] = packed
    }
  }
  return -1
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
