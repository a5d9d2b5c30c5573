// One decoder layer over the tokens of one or more sequences: h += mixer(rms(h)); h += feedForward(rms(h)). Written beside
// the model's definition; every row is computed the same whichever rows are beside it.

import { expert } from '../../ops/moe/reference.js'
import { rmsNorm } from '../../ops/norm/reference.js'
import type { LayerProbe } from '../backend.js'
import { attentionMixer } from './attentionMixer.js'
import { deltaMixer } from './deltaMixer.js'
import type { LayerContext, LayerRun } from './layerRun.js'
import type { LayerWeights } from './model.js'
import { moeBlock } from './moeBlock.js'
import type { LinearState } from './sequence.js'

export interface LayerResult {
  readonly probe: Omit<LayerProbe, 'layer'>
  /** Run by run the state after all tokens, or after each where there are guesses; none for full attention. */
  readonly linear: readonly (readonly LinearState[])[]
}

/** hidden [tokens, hidden] */
export async function forwardLayer(
  weights: LayerWeights,
  hidden: Float32Array,
  runs: readonly LayerRun[],
  context: LayerContext,
): Promise<LayerResult> {
  const { config } = context
  const { mixer, feedForward } = weights
  const input = rmsNorm(hidden, weights.inputNorm, config.rmsNormEps)
  const linear: LinearState[][] = []
  const mixerOut =
    mixer.kind === 'full_attention'
      ? attentionMixer(mixer, input, runs, config)
      : deltaMixer(mixer, input, runs, config, linear)
  const middle = add(hidden, mixerOut)
  await context.phase('mixer')

  const normed = rmsNorm(middle, weights.postAttentionNorm, config.rmsNormEps)
  const block =
    feedForward.kind === 'moe'
      ? await moeBlock(feedForward, normed, context)
      : { ...NOTHING, mlpOut: expert(feedForward.expert, normed, feedForward.shape.activation) }
  const out = add(middle, block.mlpOut)
  await context.phase(feedForward.kind === 'moe' ? 'experts' : 'dense')
  return { probe: { mixerOut, normed, ...block, out }, linear }
}

const NOTHING = {
  routerLogits: new Float32Array(0),
  routerIndices: new Int32Array(0),
  routerWeights: new Float32Array(0),
  sharedOut: new Float32Array(0),
  sharedGate: new Float32Array(0),
}

function add(a: Float32Array, b: Float32Array): Float32Array {
  return a.map((value, i) => value + b[i])
}
