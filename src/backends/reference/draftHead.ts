// The head that guesses ahead: it joins a token's embedding with the model's hidden row before it, and runs one decoder layer
// over that. Its keys and values of tokens that are known need no more than the layer's first projections.
import type { ModelConfig } from '../../model/config.js'
import { embed } from '../../ops/embed/reference.js'
import { matVec } from '../../ops/matmul/reference.js'
import { rmsNorm } from '../../ops/norm/reference.js'
import { storeKeyValues } from './attentionMixer.js'
import type { LayerRun } from './layerRun.js'
import type { AttentionWeights, DraftHeadWeights, ModelWeights } from './model.js'

/** tokens, and before [tokens, hidden]: the final-norm rows of the tokens before them -> the layer's input [tokens, hidden] */
export function headInput(
  { embed: table, draftHead }: ModelWeights,
  tokens: readonly number[],
  before: Float32Array,
  { hiddenSize, rmsNormEps }: ModelConfig,
): Float32Array {
  const { fc, embeddingNorm, hiddenNorm } = draftHead as DraftHeadWeights
  const embedded = rmsNorm(embed(table, tokens), embeddingNorm, rmsNormEps)
  const hidden = rmsNorm(before, hiddenNorm, rmsNormEps)
  const joined = new Float32Array(2 * embedded.length) // [tokens, 2, hidden]
  for (let t = 0; t < tokens.length; t++) {
    joined.set(embedded.subarray(t * hiddenSize, (t + 1) * hiddenSize), 2 * t * hiddenSize)
    joined.set(hidden.subarray(t * hiddenSize, (t + 1) * hiddenSize), (2 * t + 1) * hiddenSize)
  }
  return matVec(fc, joined)
}

/** Puts the head's keys and values of known tokens into their pages. */
export function storeHeadRows(
  weights: ModelWeights,
  tokens: readonly number[],
  before: Float32Array, // [tokens, hidden]
  run: LayerRun,
  config: ModelConfig,
): void {
  const { layer } = weights.draftHead as DraftHeadWeights
  const input = rmsNorm(headInput(weights, tokens, before, config), layer.inputNorm, config.rmsNormEps)
  storeKeyValues(layer.mixer as AttentionWeights, input, [run], config)
}
