// Qwen3.5 and 3.6 with experts (35B-A3B to 397B-A17B): gated delta nets with full attention in every fourth layer, and in
// every layer routed experts beside a gated shared one.
import { type AttentionShape, type MoeShape, SOFTMAX_ROUTER } from '../layers.js'
import type { Family } from './family.js'
import { MAX_EXPERTS, readDelta, readLayerKinds, readRope } from './readShapes.js'

export const qwen3_5_moe: Family = {
  name: 'qwen3_5_moe',
  modelTypes: ['qwen3_5_moe', 'qwen3_5_moe_text'],
  dialect: 'qwen3_5',
  zeroCentredNorms: true,

  readShapes(fields, { numLayers, headDim }) {
    fields.mustBe('attention_bias', false)
    fields.mustBe('hidden_act', 'silu')
    fields.mustBe('attn_output_gate', true)
    fields.mustBe('norm_topk_prob', true)
    fields.mustBe('decoder_sparse_step', 1)
    fields.mustBeEmpty('mlp_only_layers')
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
    const feedForward: MoeShape = {
      kind: 'moe',
      router: SOFTMAX_ROUTER,
      shared: 'gated',
      activation: { kind: 'silu' },
      expertBias: false,
    }
    const { kinds, interval } = readLayerKinds(fields, numLayers)
    return {
      layers: kinds.map(kind => ({ mixer: kind === 'full_attention' ? attention : { kind }, feedForward })),
      rope,
      fullAttentionInterval: interval,
      ...readDelta(fields),
      numExperts: fields.size('num_experts', MAX_EXPERTS),
      expertsPerToken: fields.size('num_experts_per_tok'),
      moeIntermediateSize: fields.size('moe_intermediate_size'),
      sharedExpertIntermediateSize: fields.size('shared_expert_intermediate_size'),
    }
  },
}
