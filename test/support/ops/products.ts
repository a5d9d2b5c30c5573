// Products against the reference, within a band. The terms of a sum may cancel: what is left of them then says nothing of how
// exactly they were added. So what differs is held against what such sums come to otherwise.
import { matVec } from '#moeflux/ops/matmul/reference.js'
import { dequantizeRow, type Weights } from '#moeflux/ops/matmul/storedWeights.js'
import { type Band, expectClose } from './bands.js'

/** What sums of W x come to where their terms do not cancel: the largest square root of a sum of squared terms. */
export function productSize(weights: Weights, x: Float32Array): number {
  const { rows, cols } = weights
  const squares = new Float32Array(rows * cols)
  for (let row = 0; row < rows; row++) squares.set(dequantizeRow(weights, row), row * cols)
  const sums = matVec(
    { kind: 'plain', rows, cols, values: squares.map(w => w * w) },
    x.map(value => value * value),
  )
  return Math.sqrt(sums.reduce((a, b) => Math.max(a, b), 0))
}

/** Fails where `got` [tokens, rows] is not W x [tokens, cols] within `band`. */
export function expectProduct(got: Float32Array, weights: Weights, x: Float32Array, band: Band): void {
  expectClose(got, matVec(weights, x), band, 'product', productSize(weights, x))
}
