// Layers as families other than `qwen3_5_moe` have them, in few numbers: for tests that want one model of each sort.
import type { AttentionShape, LayerShape, MoeShape } from '#moeflux/model/layers.js'

const rope = { dims: 16, theta: 1e6, yarn: null }

const attention: AttentionShape = {
  kind: 'full_attention',
  outputGate: false,
  qkNorm: true,
  qkvBias: false,
  outputBias: false,
  rope,
  window: null,
  sinks: false,
}

const dense: LayerShape['feedForward'] = { kind: 'dense', width: 96, activation: { kind: 'silu' } }

/** Delta nets and gated attention before dense blocks, as in `qwen3_5`. */
export const denseKinds: readonly LayerShape[] = [
  { mixer: { kind: 'linear_attention' }, feedForward: dense },
  { mixer: { ...attention, outputGate: true }, feedForward: dense },
]

/** A dense layer, then experts of a sigmoid router with groups beside a plain shared one, as in `glm4_moe`. For multiples of five experts. */
export const glmKinds: readonly LayerShape[] = (() => {
  const mixer: AttentionShape = { ...attention, qkNorm: false, qkvBias: true }
  const feedForward: MoeShape = {
    kind: 'moe',
    router: {
      score: 'sigmoid',
      order: 'scoreThenTop',
      bias: false,
      selectionBias: true,
      groups: { count: 5, used: 3 },
      renormalize: true,
      scale: 1.5,
    },
    shared: 'plain',
    activation: { kind: 'silu' },
    expertBias: false,
  }
  return [
    { mixer, feedForward: dense },
    { mixer, feedForward },
    { mixer, feedForward },
  ]
})()

/** A window in every other layer, sinks, biases everywhere, YaRN, clamped SwiGLU, as in `gpt_oss`. */
export const gptOssKinds: readonly LayerShape[] = [3, null].map(window => {
  const yarn = { factor: 8, betaFast: 32, betaSlow: 1, originalContext: 64, truncate: false, attentionFactor: 1.2 }
  const mixer: AttentionShape = {
    ...attention,
    qkNorm: false,
    qkvBias: true,
    outputBias: true,
    rope: { dims: 32, theta: 15e4, yarn },
    window,
    sinks: true,
  }
  const feedForward: MoeShape = {
    kind: 'moe',
    router: {
      score: 'softmax',
      order: 'topThenSoftmax',
      bias: true,
      selectionBias: false,
      groups: null,
      renormalize: true,
      scale: 1,
    },
    shared: 'none',
    activation: { kind: 'clampedSwiglu', limit: 1.5, alpha: 1.702 },
    expertBias: true,
  }
  return { mixer, feedForward }
})
