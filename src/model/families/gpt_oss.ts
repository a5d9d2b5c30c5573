// gpt-oss (20b, 120b): attention with a sink per head and biases, every other layer within a window, YaRN; experts chosen
// before the softmax, with biases and a clamped SwiGLU, in MXFP4. What alternates in its tensors (gate and up) and what
// lies input first is put into the usual order when packing.
import { UnsupportedModelError } from '../../base/errors.js'
import type { ConfigFields } from '../configFields.js'
import type { AttentionShape, LayerShape, MoeShape } from '../layers.js'
import { type Family, NO_DELTA } from './family.js'
import { ggufExperts } from './ggufSource.js'
import { MAX_EXPERTS, readRope } from './readShapes.js'

export const gpt_oss: Family = {
  name: 'gpt_oss',
  modelTypes: ['gpt_oss'],
  dialect: 'harmony',
  zeroCentredNorms: false,
  source: {
    renames: [
      [/\.mlp\.router\./, '.mlp.gate.'],
      [/\.mlp\.experts\.(gate|up|down)_proj\./, '.mlp.switch_mlp.$1_proj.'],
    ],
    fusedExperts: 'alternating',
  },
  gguf: {
    architecture: 'gpt-oss',
    modelType: 'gpt_oss',
    configOf(metadata) {
      const { num_experts, moe_intermediate_size, ...sizes } = ggufExperts(metadata)
      return {
        ...sizes,
        num_local_experts: num_experts,
        intermediate_size: moe_intermediate_size,
        sliding_window: metadata.number('attention.sliding_window'),
        rope_parameters: {
          rope_type: 'yarn',
          rope_theta: metadata.number('rope.freq_base'),
          beta_fast: 32,
          beta_slow: 1,
          truncate: false,
          factor: metadata.number('rope.scaling.factor'),
          original_max_position_embeddings: metadata.number('rope.scaling.original_context_length'),
        },
      }
    },
  },

  readShapes(fields, { numLayers, headDim }) {
    fields.mustBe('hidden_act', 'silu')
    const hasBias = fields.boolean('attention_bias', true)
    const rope = readRope(fields, headDim, 1)
    const attention: AttentionShape = {
      kind: 'full_attention',
      outputGate: false,
      qkNorm: false,
      qkvBias: hasBias,
      outputBias: hasBias,
      rope,
      window: null,
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
      activation: { kind: 'clampedSwiglu', limit: fields.positive('swiglu_limit', 7), alpha: 1.702 },
      expertBias: true,
    }
    const windowed: AttentionShape = { ...attention, window: fields.size('sliding_window') }
    return {
      layers: readWindows(fields, numLayers).map(
        (isWindowed): LayerShape => ({ mixer: isWindowed ? windowed : attention, feedForward }),
      ),
      rope,
      fullAttentionInterval: 1,
      headShape: null,
      ...NO_DELTA,
      numExperts: fields.size('num_local_experts', MAX_EXPERTS),
      expertsPerToken: fields.size(fields.has('num_experts_per_tok') ? 'num_experts_per_tok' : 'experts_per_token'),
      moeIntermediateSize: fields.size('intermediate_size'),
      sharedExpertIntermediateSize: 0,
    }
  },
}

/** Which layers see a window alone; without a list every other one, from the first. */
function readWindows(fields: ConfigFields, numLayers: number): boolean[] {
  const types = fields.get('layer_types')
  if (types === undefined) return Array.from({ length: numLayers }, (_, layer) => layer % 2 === 0)
  if (!Array.isArray(types) || types.length !== numLayers) {
    const got = Array.isArray(types) ? `${types.length} entries` : types
    throw new UnsupportedModelError('layer_types', got, `${numLayers} entries (num_hidden_layers)`)
  }
  return types.map((type, i) => {
    if (type === 'sliding_attention' || type === 'full_attention') return type === 'sliding_attention'
    throw new UnsupportedModelError(`layer_types[${i}]`, type, 'sliding_attention or full_attention')
  })
}
