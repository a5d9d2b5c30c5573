// Matrix times vector, for one token or many: y = W x. A quantized group uses Σ(s·q + b)·x = s·Σq·x + b·Σx, with Σx
// computed once per group of an input vector. Every output element is one sum in one order, however many tokens are in
// the call; a row is unpacked once for all of them, and four tokens share each element of two rows. Few tokens have a way of
// their own: fewTokens.ts.
import { nibbleRows, plainRows } from './fewTokens.js'
import {
  type BlockWeights,
  type PlainWeights,
  type QuantizedWeights,
  unpackRow,
  type Weights,
} from './storedWeights.js'

/** x [tokens, cols] -> [tokens, rows] */
export function matVec(weights: Weights, x: Float32Array): Float32Array {
  return weights.kind === 'plain' ? plainMatVec(weights, x) : quantizedMatVec(weights, x)
}

function plainMatVec({ rows, cols, values }: PlainWeights, x: Float32Array): Float32Array {
  const tokens = x.length / cols
  const input = Float64Array.from(x) // [tokens, cols], so that no load in the inner loop needs a conversion
  const [row, next] = [new Float64Array(cols), new Float64Array(cols)]
  const [products, nextProducts] = [new Float64Array(tokens), new Float64Array(tokens)]
  const out = new Float32Array(tokens * rows)
  const isFew = tokens < 4
  const end = isFew ? plainRows(values, input, rows, out) : rows & ~1
  for (let r = 0; !isFew && r < end; r += 2) {
    row.set(values.subarray(r * cols, (r + 1) * cols))
    next.set(values.subarray((r + 1) * cols, (r + 2) * cols))
    pairProducts(row, next, input, tokens, cols, products, nextProducts)
    for (let t = 0; t < tokens; t++) {
      out[t * rows + r] = products[t]
      out[t * rows + r + 1] = nextProducts[t]
    }
  }
  for (let r = end; r < rows; r++) {
    row.set(values.subarray(r * cols, (r + 1) * cols))
    groupProducts(row, input, 0, tokens, cols, products)
    for (let t = 0; t < tokens; t++) out[t * rows + r] = products[t]
  }
  return out
}

function quantizedMatVec(weights: QuantizedWeights | BlockWeights, x: Float32Array): Float32Array {
  const { rows, cols, group } = weights
  const tokens = x.length / cols
  const input = Float64Array.from(x)
  const sums = groupSums(x, group) // [tokens, groups]
  const [row, next] = [new Float64Array(cols), new Float64Array(cols)]
  const [products, nextProducts] = [new Float64Array(sums.length), new Float64Array(sums.length)]
  const out = new Float32Array(tokens * rows)
  const isFew = tokens < 4
  const end = isFew ? nibbleRows(weights, input, sums, out) : rows & ~1
  for (let r = 0; !isFew && r < end; r += 2) {
    unpackRow(weights, r, row)
    unpackRow(weights, r + 1, next)
    pairProducts(row, next, input, tokens, group, products, nextProducts)
    scaleProducts(weights, r, products, sums, out)
    scaleProducts(weights, r + 1, nextProducts, sums, out)
  }
  for (let r = end; r < rows; r++) {
    unpackRow(weights, r, row)
    groupProducts(row, input, 0, tokens, group, products)
    scaleProducts(weights, r, products, sums, out)
  }
  return out
}

/** A row's outputs from its products: products, sums [tokens, groups] -> out [tokens, rows] */
function scaleProducts(
  { rows, cols, group, scales, biases }: QuantizedWeights | BlockWeights,
  r: number,
  products: Float64Array,
  sums: Float64Array,
  out: Float32Array,
): void {
  const groups = cols / group
  const tokens = products.length / groups
  for (let t = 0; t < tokens; t++) {
    let y = 0
    for (let g = 0; g < groups; g++) {
      y += scales[r * groups + g] * products[t * groups + g] + biases[r * groups + g] * sums[t * groups + g]
    }
    out[t * rows + r] = y
  }
}

/** Σ x over each group of `group` elements. */
function groupSums(x: Float32Array, group: number): Float64Array {
  const sums = new Float64Array(x.length / group)
  for (let i = 0; i < x.length; i++) sums[Math.floor(i / group)] += x[i]
  return sums
}

/** Σ row·x over each group, for tokens from `start` on: row [cols], x [tokens, cols] -> out [tokens, cols / group] */
function groupProducts(
  row: Float64Array,
  x: Float64Array,
  start: number,
  tokens: number,
  group: number,
  out: Float64Array,
): void {
  const cols = row.length
  const groups = cols / group
  for (let t = start; t < tokens; t++) {
    for (let g = 0; g < groups; g++) {
      let sum = 0
      const end = (g + 1) * group
      for (let i = g * group; i < end; i++) sum += row[i] * x[t * cols + i]
      out[t * groups + g] = sum
    }
  }
}

/** The same for two rows. Eight sums at once: each element that is loaded is used two or four times. */
function pairProducts(
  a: Float64Array,
  b: Float64Array,
  x: Float64Array,
  tokens: number,
  group: number,
  outA: Float64Array,
  outB: Float64Array,
): void {
  const cols = a.length
  const groups = cols / group
  let t = 0
  for (; t + 3 < tokens; t += 4) {
    const x0 = t * cols
    const x1 = x0 + cols
    const x2 = x1 + cols
    const x3 = x2 + cols
    for (let g = 0; g < groups; g++) {
      let a0 = 0
      let a1 = 0
      let a2 = 0
      let a3 = 0
      let b0 = 0
      let b1 = 0
      let b2 = 0
      let b3 = 0
      const end = (g + 1) * group
      for (let i = g * group; i < end; i++) {
        const v = a[i]
        const w = b[i]
        const y0 = x[x0 + i]
        const y1 = x[x1 + i]
        const y2 = x[x2 + i]
        const y3 = x[x3 + i]
        a0 += v * y0
        a1 += v * y1
        a2 += v * y2
        a3 += v * y3
        b0 += w * y0
        b1 += w * y1
        b2 += w * y2
        b3 += w * y3
      }
      const at = t * groups + g
      outA[at] = a0
      outA[at + groups] = a1
      outA[at + 2 * groups] = a2
      outA[at + 3 * groups] = a3
      outB[at] = b0
      outB[at + groups] = b1
      outB[at + 2 * groups] = b2
      outB[at + 3 * groups] = b3
    }
  }
  groupProducts(a, x, t, tokens, group, outA)
  groupProducts(b, x, t, tokens, group, outB)
}

/** [rows, width] -> [rows, size] from column `start`. */
export function takeColumns(x: Float32Array, width: number, start: number, size: number): Float32Array {
  const rows = x.length / width
  const out = new Float32Array(rows * size)
  for (let row = 0; row < rows; row++) out.set(x.subarray(row * width + start, row * width + start + size), row * size)
  return out
}
