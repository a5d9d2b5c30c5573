// The feed-forward block of layers with a router and a gated shared expert, for code that computes no other.
import { UnsupportedModelError } from '../errors.js'
import type { FeedForward, LayerTensors, Matrix } from './tensors.js'

export interface GatedMoe {
  readonly router: Matrix
  readonly sharedGate: Matrix
  readonly sharedExpert: FeedForward
}

export function gatedMoe({ layer, feedForward }: LayerTensors): GatedMoe {
  const shared = feedForward.kind === 'moe' ? feedForward.shared : null
  if (feedForward.kind !== 'moe' || shared === null || shared.gate === null) {
    throw new UnsupportedModelError(`layer ${layer}`, feedForward.shape, 'experts beside a gated shared one')
  }
  return { router: feedForward.router, sharedGate: shared.gate, sharedExpert: shared.expert }
}
