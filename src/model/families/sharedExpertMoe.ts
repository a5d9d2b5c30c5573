// The feed-forward block of Qwen3-Next and Qwen3.5 with experts: a softmax router, and a gated shared expert beside it.
import type { ConfigFields } from '../configFields.js'
import { type MoeShape, SOFTMAX_ROUTER } from '../layers.js'
import type { ExpertSizes } from './family.js'
import { MAX_EXPERTS } from './readShapes.js'

export const SHARED_EXPERT_MOE: MoeShape = {
  kind: 'moe',
  router: SOFTMAX_ROUTER,
  shared: 'gated',
  activation: { kind: 'silu' },
  expertBias: false,
}

export function readSharedExpertSizes(fields: ConfigFields): ExpertSizes {
  fields.mustBe('hidden_act', 'silu')
  fields.mustBe('norm_topk_prob', true)
  fields.mustBe('decoder_sparse_step', 1)
  fields.mustBeEmpty('mlp_only_layers')
  return {
    numExperts: fields.size('num_experts', MAX_EXPERTS),
    expertsPerToken: fields.size('num_experts_per_tok'),
    moeIntermediateSize: fields.size('moe_intermediate_size'),
    sharedExpertIntermediateSize: fields.size('shared_expert_intermediate_size'),
  }
}
