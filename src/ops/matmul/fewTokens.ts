// Products with few tokens, four rows at a time: sums of one row would wait for one another, and rows are multiplied as they
// lie, since unpacking one for a single token takes longer than its products. Sums are those of matmul/reference.ts, in the same order. Each
// function returns the first row that it left to others.
import type { BlockWeights, QuantizedWeights } from './storedWeights.js'

/** values [rows, cols], x [tokens, cols] -> out [tokens, rows] */
export function plainRows(values: Float32Array, x: Float64Array, rows: number, out: Float32Array): number {
  const cols = values.length / rows
  const end = rows & ~3
  for (let t = 0; t * rows < out.length; t++) {
    for (let r = 0; r < end; r += 4) {
      const at = r * cols
      let a = 0
      let b = 0
      let c = 0
      let d = 0
      for (let i = 0; i < cols; i++) {
        const y = x[t * cols + i]
        a += values[at + i] * y
        b += values[at + cols + i] * y
        c += values[at + 2 * cols + i] * y
        d += values[at + 3 * cols + i] * y
      }
      const to = t * rows + r
      out[to] = a
      out[to + 1] = b
      out[to + 2] = c
      out[to + 3] = d
    }
  }
  return end
}

/** Rows of 4 bits an element; leaves other formats alone. x [tokens, cols], sums [tokens, groups] -> out [tokens, rows] */
export function nibbleRows(
  weights: QuantizedWeights | BlockWeights,
  x: Float64Array,
  sums: Float64Array,
  out: Float32Array,
): number {
  if (weights.kind !== 'quantized' || weights.bits !== 4) return 0
  const { rows, cols, group, packed, scales, biases } = weights
  const bytes = new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength)
  const [groups, width, half] = [cols / group, cols / 2, group / 2]
  const end = rows & ~3
  for (let t = 0; t * rows < out.length; t++) {
    for (let r = 0; r < end; r += 4) {
      let y0 = 0
      let y1 = 0
      let y2 = 0
      let y3 = 0
      for (let g = 0; g < groups; g++) {
        let a = 0
        let b = 0
        let c = 0
        let d = 0
        let from = t * cols + g * group
        const first = r * width + g * half
        for (let i = first; i < first + half; i++, from += 2) {
          const low = x[from]
          const high = x[from + 1]
          const p = bytes[i]
          const q = bytes[i + width]
          const u = bytes[i + 2 * width]
          const v = bytes[i + 3 * width]
          a = a + (p & 15) * low + (p >> 4) * high
          b = b + (q & 15) * low + (q >> 4) * high
          c = c + (u & 15) * low + (u >> 4) * high
          d = d + (v & 15) * low + (v >> 4) * high
        }
        const n = r * groups + g
        const sum = sums[t * groups + g]
        y0 += scales[n] * a + biases[n] * sum
        y1 += scales[n + groups] * b + biases[n + groups] * sum
        y2 += scales[n + 2 * groups] * c + biases[n + 2 * groups] * sum
        y3 += scales[n + 3 * groups] * d + biases[n + 3 * groups] * sum
      }
      const to = t * rows + r
      out[to] = y0
      out[to + 1] = y1
      out[to + 2] = y2
      out[to + 3] = y3
    }
  }
  return end
}
