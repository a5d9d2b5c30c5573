// The embedding rows of tokens.
import { dequantizeRow, type Weights } from '../matmul/storedWeights.js'

/** tokens -> [tokens, hidden] */
export function embed(weights: Weights, tokens: ArrayLike<number>): Float32Array {
  const { cols } = weights
  const out = new Float32Array(tokens.length * cols)
  for (let t = 0; t < tokens.length; t++) dequantizeRow(weights, tokens[t], out.subarray(t * cols, (t + 1) * cols))
  return out
}
