// What Qwen3-Next and Qwen3.5 with experts have in common: hybrid mixers, and in every layer a softmax router with a gated shared
// expert beside its experts.
import type { ConfigFields } from '../configFields.js'
import { type LayerShape, type MoeShape, SOFTMAX_ROUTER } from '../layers.js'
import type { ExpertSizes, Family } from './family.js'
import { ggufDelta, ggufExperts, refuseOtherRouters } from './ggufSource.js'
import { readHybridMixers } from './hybridMixers.js'
import { MAX_EXPERTS } from './readShapes.js'

const SHARED_EXPERT_MOE: MoeShape = {
  kind: 'moe',
  router: SOFTMAX_ROUTER,
  shared: 'gated',
  activation: { kind: 'silu' },
  expertBias: false,
}

function readSharedExpertSizes(fields: ConfigFields): ExpertSizes {
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

export const readHybridMoe: Family['readShapes'] = (fields, base) => {
  const { mixers, headMixer, ...rest } = readHybridMixers(fields, base)
  const layerOf = (mixer: LayerShape['mixer']) => ({ mixer, feedForward: SHARED_EXPERT_MOE })
  const headShape = headMixer && layerOf(headMixer)
  return { layers: mixers.map(layerOf), headShape, ...rest, ...readSharedExpertSizes(fields) }
}

export const ggufHybridMoe: NonNullable<Family['gguf']>['configOf'] = metadata => {
  refuseOtherRouters(metadata)
  const shared = metadata.number('expert_shared_feed_forward_length')
  return { ...ggufExperts(metadata), shared_expert_intermediate_size: shared, ...ggufDelta(metadata) }
}
