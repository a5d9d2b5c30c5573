// Matrix times vector, for one token or many: y = W x. A quantized group uses Σ(s·q + b)·x = s·Σq·x + b·Σx, with Σx
// computed once per group of an input vector. Every output element is one sum in one order, however many tokens are in
// the call; a row is unpacked once for all of them.
import { unpackRow, type Weights } from './weights.js'

/** x [tokens, cols] -> [tokens, rows] */
export function matVec(weights: Weights, x: Float32Array): Float32Array {
  const { rows, cols } = weights
  const tokens = x.length / cols
  const out = new Float32Array(tokens * rows)
  if (weights.kind === 'plain') {
    for (let row = 0; row < rows; row++) {
      for (let t = 0; t < tokens; t++) {
        out[t * rows + row] = dot(weights.values, row * cols, x, t * cols, cols)
      }
    }
    return out
  }
  const { group, scales, biases } = weights
  const groups = cols / group
  const sums = groupSums(x, group) // [tokens, groups]
  const q = new Float32Array(cols)
  for (let row = 0; row < rows; row++) {
    unpackRow(weights, row, q)
    for (let t = 0; t < tokens; t++) {
      let y = 0
      for (let g = 0; g < groups; g++) {
        const product = dot(q, g * group, x, t * cols + g * group, group)
        y += scales[row * groups + g] * product + biases[row * groups + g] * sums[t * groups + g]
      }
      out[t * rows + row] = y
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

// Four sums side by side: one chain of additions would wait for itself.
function dot(a: Float32Array, aStart: number, b: Float32Array, bStart: number, size: number): number {
  let s0 = 0
  let s1 = 0
  let s2 = 0
  let s3 = 0
  let i = 0
  for (; i + 3 < size; i += 4) {
    s0 += a[aStart + i] * b[bStart + i]
    s1 += a[aStart + i + 1] * b[bStart + i + 1]
    s2 += a[aStart + i + 2] * b[bStart + i + 2]
    s3 += a[aStart + i + 3] * b[bStart + i + 3]
  }
  for (; i < size; i++) s0 += a[aStart + i] * b[bStart + i]
  return s0 + s1 + (s2 + s3)
}
