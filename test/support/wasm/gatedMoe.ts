// The feed-forward block of a layer that has a router and a gated shared expert.
import type { FeedForward, LayerTensors, Matrix } from '#moeflux/model/tensors.js'

export interface GatedMoe {
  readonly router: Matrix
  readonly sharedGate: Matrix
  readonly sharedExpert: FeedForward
}

export function gatedMoe({ feedForward }: LayerTensors): GatedMoe {
  if (feedForward.kind !== 'moe' || !feedForward.shared?.gate) throw new Error('another kind of layer')
  const { router, shared } = feedForward
  return { router, sharedGate: shared.gate as Matrix, sharedExpert: shared.expert }
}
