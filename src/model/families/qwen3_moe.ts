// Qwen3 with experts (30B-A3B, 235B-A22B, Coder): attention in every layer, on the whole head, without an output gate; no
// shared expert.
import { type AttentionShape, type LayerShape, SOFTMAX_ROUTER } from '../layers.js'
import { type Family, NO_DELTA, NO_EXPERTS } from './family.js'
import { ggufExperts, refuseOtherRouters } from './ggufSource.js'
import { MAX_EXPERTS, readRope } from './readShapes.js'

export const qwen3_moe: Family = {
  name: 'qwen3_moe',
  modelTypes: ['qwen3_moe'],
  dialect: 'hermes',
  zeroCentredNorms: false,
  source: { renames: [], fusedExperts: 'stacked' },
  gguf: {
    architecture: 'qwen3moe',
    modelType: 'qwen3_moe',
    names: { 'post_attention_layernorm.weight': 'ffn_norm.weight' },
    configOf(metadata) {
      refuseOtherRouters(metadata)
      return { ...ggufExperts(metadata), norm_topk_prob: true }
    },
  },

  readShapes(fields, { numLayers, headDim }) {
    fields.mustBe('hidden_act', 'silu')
    fields.mustBe('attention_bias', false)
    fields.mustBe('use_sliding_window', false)
    fields.mustBe('decoder_sparse_step', 1)
    fields.mustBeEmpty('mlp_only_layers')
    const rope = readRope(fields, headDim, 1)
    const mixer: AttentionShape = {
      kind: 'full_attention',
      outputGate: false,
      qkNorm: true,
      qkvBias: false,
      outputBias: false,
      rope,
      window: null,
      sinks: false,
    }
    const layer: LayerShape = {
      mixer,
      feedForward: {
        kind: 'moe',
        router: { ...SOFTMAX_ROUTER, renormalize: fields.boolean('norm_topk_prob', false) },
        shared: 'none',
        activation: { kind: 'silu' },
        expertBias: false,
      },
    }
    return {
      layers: Array.from({ length: numLayers }, () => layer),
      rope,
      fullAttentionInterval: 1,
      headShape: null,
      ...NO_DELTA,
      ...NO_EXPERTS,
      numExperts: fields.size('num_experts', MAX_EXPERTS),
      expertsPerToken: fields.size('num_experts_per_tok'),
      moeIntermediateSize: fields.size('moe_intermediate_size'),
    }
  },
}
