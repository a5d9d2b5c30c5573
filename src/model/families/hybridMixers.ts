// Mixers of Qwen3-Next and all of Qwen3.5: gated delta nets, and every few layers an attention with an output gate, norms of
// queries and keys, and a part of each head rotated.
import type { ConfigFields } from '../configFields.js'
import type { AttentionShape, LayerShape, RopeShape } from '../layers.js'
import type { BaseShapes, DeltaSizes } from './family.js'
import { readDelta, readLayerKinds, readRope } from './readShapes.js'

export interface HybridMixers extends DeltaSizes {
  readonly mixers: readonly LayerShape['mixer'][]
  readonly headMixer: AttentionShape | null // of a head for drafts
  readonly rope: RopeShape
  readonly fullAttentionInterval: number
}

export function readHybridMixers(fields: ConfigFields, { numLayers, headDim }: BaseShapes): HybridMixers {
  fields.mustBe('attention_bias', false)
  fields.mustBe('attn_output_gate', true)
  const rope = readRope(fields, headDim, 0.25)
  const attention: AttentionShape = {
    kind: 'full_attention',
    outputGate: true,
    qkNorm: true,
    qkvBias: false,
    outputBias: false,
    rope,
    window: null,
    sinks: false,
  }
  const { kinds, interval } = readLayerKinds(fields, numLayers)
  return {
    mixers: kinds.map(kind => (kind === 'full_attention' ? attention : { kind })),
    // Most exports keep the field though they dropped the head, and some have a head without the field.
    headMixer: fields.has('mtp_num_hidden_layers') && fields.get('mtp_num_hidden_layers') !== 1 ? null : attention,
    rope,
    fullAttentionInterval: interval,
    ...readDelta(fields),
  }
}
