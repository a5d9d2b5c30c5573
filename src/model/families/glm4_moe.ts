// GLM-4.5 and 4.6: attention with biases and half of each head rotated; the first layers dense, then experts chosen by a
// sigmoid with a bias, within the best groups, beside an ungated shared expert.
import type { Json } from '../configFields.js'
import type { AttentionShape, DenseShape, LayerShape, MoeShape } from '../layers.js'
import { type Family, NO_DELTA } from './family.js'
import { type GgufMetadata, type GgufTensorNames, ggufExperts } from './ggufSource.js'
import { MAX_EXPERTS, readRope } from './readShapes.js'

export const glm4_moe: Family = {
  name: 'glm4_moe',
  modelTypes: ['glm4_moe'],
  dialect: 'glm4',
  zeroCentredNorms: false,
  source: { renames: [[/\.mlp\.shared_experts\./, '.mlp.shared_expert.']], fusedExperts: 'stacked' },
  gguf: { architecture: 'glm4moe', modelType: 'glm4_moe', configOf: ggufFields },

  readShapes(fields, { numLayers, headDim }) {
    fields.mustBe('hidden_act', 'silu')
    fields.mustBe('scoring_func', 'sigmoid')
    fields.mustBe('topk_method', 'noaux_tc')
    const rope = readRope(fields, headDim, 0.5)
    const mixer: AttentionShape = {
      kind: 'full_attention',
      outputGate: false,
      qkNorm: fields.boolean('use_qk_norm', false),
      qkvBias: fields.boolean('attention_bias', false),
      outputBias: false,
      rope,
      window: null,
      sinks: false,
    }
    const activation = { kind: 'silu' } as const
    const numExperts = fields.size('n_routed_experts', MAX_EXPERTS)
    const groups = fields.has('n_group') ? fields.size('n_group', numExperts) : 1
    if (numExperts % groups !== 0) fields.refuse('n_group', `a divisor of ${numExperts} (n_routed_experts)`)
    const moe: MoeShape = {
      kind: 'moe',
      router: {
        score: 'sigmoid',
        order: 'scoreThenTop',
        bias: false,
        selectionBias: true,
        groups: groups === 1 ? null : { count: groups, used: fields.size('topk_group', groups) },
        renormalize: fields.boolean('norm_topk_prob', true),
        scale: fields.positive('routed_scaling_factor', 1),
      },
      shared: 'plain',
      activation,
      expertBias: false,
    }
    const dense: DenseShape = { kind: 'dense', width: fields.size('intermediate_size'), activation }
    const denseLayers = fields.integer('first_k_dense_replace', 0, numLayers - 1)
    const moeIntermediateSize = fields.size('moe_intermediate_size')
    return {
      layers: Array.from({ length: numLayers }, (_, layer): LayerShape => {
        return { mixer, feedForward: layer < denseLayers ? dense : moe }
      }),
      rope,
      fullAttentionInterval: 1,
      headShape: null,
      ...NO_DELTA,
      numExperts,
      expertsPerToken: fields.size('num_experts_per_tok'),
      moeIntermediateSize,
      sharedExpertIntermediateSize: moeIntermediateSize * fields.size('n_shared_experts'),
    }
  },
}

function ggufFields(metadata: GgufMetadata, tensors: GgufTensorNames): Json {
  const { num_experts, ...sizes } = ggufExperts(metadata)
  const gating = metadata.optionalNumber('expert_gating_func') ?? SIGMOID
  if (gating !== SIGMOID) metadata.fail('expert_gating_func', `${SIGMOID} (sigmoid)`)
  return {
    ...sizes,
    n_routed_experts: num_experts,
    n_shared_experts: metadata.number('expert_shared_count'),
    n_group: metadata.optionalNumber('expert_group_count') ?? 1,
    topk_group: metadata.optionalNumber('expert_group_used_count') ?? 1,
    routed_scaling_factor: metadata.optionalNumber('expert_weights_scale') ?? 1,
    norm_topk_prob: metadata.get('expert_weights_norm') !== false,
    first_k_dense_replace: metadata.number('leading_dense_block_count'),
    intermediate_size: metadata.number('feed_forward_length'),
    attention_bias: tensors.has('blk.0.attn_q.bias'),
    use_qk_norm: tensors.has('blk.0.attn_q_norm.weight'),
  }
}

/** llama.cpp's number for it. */
const SIGMOID = 2
