// Matrix times vector, for one token or many: y = W x. A quantized group uses Σ(s·q + b)·x = s·Σq·x + b·Σx, with Σx
// computed once per group of an input vector. Every output element is one sum in one order, however many tokens are in
// the call; a row is unpacked once for all of them, and four tokens share each of its elements.
import { type PlainWeights, type QuantizedWeights, unpackRow, type Weights } from './weights.js'

/** x [tokens, cols] -> [tokens, rows] */
export function matVec(weights: Weights, x: Float32Array): Float32Array {
  return weights.kind === 'plain' ? plainMatVec(weights, x) : quantizedMatVec(weights, x)
}

function plainMatVec({ rows, cols, values }: PlainWeights, x: Float32Array): Float32Array {
  const tokens = x.length / cols
  const input = Float64Array.from(x) // [tokens, cols], so that no load in the inner loop needs a conversion
  const row = new Float64Array(cols)
  const products = new Float64Array(tokens)
  const out = new Float32Array(tokens * rows)
  for (let r = 0; r < rows; r++) {
    row.set(values.subarray(r * cols, (r + 1) * cols))
    groupProducts(row, input, tokens, cols, products)
    for (let t = 0; t < tokens; t++) out[t * rows + r] = products[t]
  }
  return out
}

function quantizedMatVec(weights: QuantizedWeights, x: Float32Array): Float32Array {
  const { rows, cols, group, scales, biases } = weights
  const tokens = x.length / cols
  const groups = cols / group
  const input = Float64Array.from(x)
  const sums = groupSums(x, group) // [tokens, groups]
  const row = new Float64Array(cols)
  const products = new Float64Array(tokens * groups)
  const out = new Float32Array(tokens * rows)
  for (let r = 0; r < rows; r++) {
    unpackRow(weights, r, row)
    groupProducts(row, input, tokens, group, products)
    for (let t = 0; t < tokens; t++) {
      let y = 0
      for (let g = 0; g < groups; g++) {
        y += scales[r * groups + g] * products[t * groups + g] + biases[r * groups + g] * sums[t * groups + g]
      }
      out[t * rows + r] = y
    }
  }
  return out
}

/** Σ x over each group of `group` elements. */
export function groupSums(x: Float32Array, group: number): Float64Array {
  const sums = new Float64Array(x.length / group)
  for (let i = 0; i < x.length; i++) sums[Math.floor(i / group)] += x[i]
  return sums
}

/** Σ row·x over each group, for every token: row [cols], x [tokens, cols] -> out [tokens, cols / group] */
function groupProducts(row: Float64Array, x: Float64Array, tokens: number, group: number, out: Float64Array): void {
  const cols = row.length
  const groups = cols / group
  let t = 0
  for (; t + 3 < tokens; t += 4) {
    const x0 = t * cols
    const x1 = x0 + cols
    const x2 = x1 + cols
    const x3 = x2 + cols
    for (let g = 0; g < groups; g++) {
      let s0 = 0
      let s1 = 0
      let s2 = 0
      let s3 = 0
      const end = (g + 1) * group
      for (let i = g * group; i < end; i++) {
        const w = row[i]
        s0 += w * x[x0 + i]
        s1 += w * x[x1 + i]
        s2 += w * x[x2 + i]
        s3 += w * x[x3 + i]
      }
      out[t * groups + g] = s0
      out[(t + 1) * groups + g] = s1
      out[(t + 2) * groups + g] = s2
      out[(t + 3) * groups + g] = s3
    }
  }
  for (; t < tokens; t++) {
    for (let g = 0; g < groups; g++) {
      let sum = 0
      const end = (g + 1) * group
      for (let i = g * group; i < end; i++) sum += row[i] * x[t * cols + i]
      out[t * groups + g] = sum
    }
  }
}
