// Qwen3.5 and its sisters without experts (0.8B to 27B): the mixers of qwen3_5_moe, each layer with a dense feed-forward
// block. Nothing is streamed.
import type { DenseShape } from '../layers.js'
import { type Family, NO_EXPERTS } from './family.js'
import { ggufDelta } from './ggufSource.js'
import { readHybridMixers } from './hybridMixers.js'

export const qwen3_5: Family = {
  name: 'qwen3_5',
  modelTypes: ['qwen3_5', 'qwen3_5_text'],
  dialect: 'qwen3_5',
  zeroCentredNorms: true,
  source: { renames: [], fusedExperts: 'stacked' },
  gguf: {
    architecture: 'qwen35',
    modelType: 'qwen3_5_text',
    hasTiledHeads: true,
    configOf: metadata => ({ intermediate_size: metadata.number('feed_forward_length'), ...ggufDelta(metadata) }),
  },

  readShapes(fields, base) {
    const { mixers, headMixer, ...rest } = readHybridMixers(fields, base)
    fields.mustBe('hidden_act', 'silu')
    const width = fields.size('intermediate_size')
    const feedForward: DenseShape = { kind: 'dense', width, activation: { kind: 'silu' } }
    const headShape = headMixer && { mixer: headMixer, feedForward }
    return { layers: mixers.map(mixer => ({ mixer, feedForward })), headShape, ...rest, ...NO_EXPERTS }
  },
}
