// Full attention of one layer: projections, norms and angles of queries and keys, keys and values into their pages, softmax
// attention, the output's gate and projection.
import type { ModelConfig } from '../../model/config.js'
import { ropeFrequencies } from '../../model/ropeFrequencies.js'
import { addBias, sigmoidGate } from '../../ops/activation/reference.js'
import { attention } from '../../ops/attention/reference.js'
import { matVec, takeColumns } from '../../ops/matmul/reference.js'
import { rmsNorm } from '../../ops/norm/reference.js'
import { rope } from '../../ops/rope/reference.js'
import { PAGE_TOKENS } from '../kvPages.js'
import type { LayerRun } from './layerRun.js'
import type { AttentionWeights } from './model.js'

/** Puts the keys and values of x [tokens, hidden] into their pages. */
export function storeKeyValues(
  weights: AttentionWeights,
  x: Float32Array,
  runs: readonly LayerRun[],
  config: ModelConfig,
): void {
  const { numKvHeads: kvHeads, headDim, rmsNormEps } = config
  const projected = addBias(matVec(weights.kProj, x), weights.kBias)
  const keys = weights.kNorm ? rmsNorm(projected, weights.kNorm, rmsNormEps) : projected // [tokens, kvHeads, headDim]
  const values = addBias(matVec(weights.vProj, x), weights.vBias) // [tokens, kvHeads, headDim]
  const rowSize = kvHeads * headDim
  const angles = ropeFrequencies(weights.shape.rope)
  for (const run of runs) {
    const pages = run.pages as NonNullable<LayerRun['pages']>
    for (let t = 0; t < run.tokens; t++) {
      const row = run.row + t
      const position = run.position + t
      const key = keys.subarray(row * rowSize, (row + 1) * rowSize)
      rope(key, position, headDim, angles)
      const page = Math.floor(position / PAGE_TOKENS)
      const start = (position % PAGE_TOKENS) * rowSize
      pages.keys[page].set(key, start)
      pages.values[page].set(values.subarray(row * rowSize, (row + 1) * rowSize), start)
    }
  }
}

/** x [tokens, hidden] -> [tokens, hidden] */
export function attentionMixer(
  weights: AttentionWeights,
  x: Float32Array,
  runs: readonly LayerRun[],
  config: ModelConfig,
): Float32Array {
  const { numHeads: heads, numKvHeads: kvHeads, headDim, rmsNormEps } = config
  const { outputGate, rope: ropeShape, window } = weights.shape
  const projected = addBias(matVec(weights.qProj, x), weights.qBias) // [tokens, heads, 1 or 2, headDim]
  const pairs = (which: 0 | 1) => takeColumns(projected, 2 * headDim, which * headDim, headDim)
  const plain = outputGate ? pairs(0) : projected
  const queries = weights.qNorm ? rmsNorm(plain, weights.qNorm, rmsNormEps) : plain // [tokens, heads, headDim]
  storeKeyValues(weights, x, runs, config)
  const attended = new Float32Array(queries.length)
  const angles = ropeFrequencies(ropeShape)
  for (const run of runs) {
    const pages = run.pages as NonNullable<LayerRun['pages']>
    for (let t = 0; t < run.tokens; t++) {
      const row = run.row + t
      const position = run.position + t
      const query = queries.subarray(row * heads * headDim, (row + 1) * heads * headDim)
      rope(query, position, headDim, angles)
      const shape = { heads, kvHeads, headDim, window, firstRow: run.firstRow }
      const out = attention(query, pages.keys, pages.values, PAGE_TOKENS, position + 1, shape, weights.sinks)
      attended.set(out, row * heads * headDim)
    }
  }
  const out = outputGate ? sigmoidGate(attended, pairs(1)) : attended
  return addBias(matVec(weights.oProj, out), weights.oBias)
}
