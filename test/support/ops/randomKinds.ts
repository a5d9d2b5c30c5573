// Layers of any kinds that a shape can say, beside each other as no family has them: what a backend computes of one kind
// must not depend on its neighbours.
import fc from 'fast-check'
import type { Activation, AttentionShape, LayerShape, RopeShape, RouterShape } from '#moeflux/model/layers.js'

const activation: fc.Arbitrary<Activation> = fc.constantFrom(
  { kind: 'silu' },
  { kind: 'clampedSwiglu', limit: 1.5, alpha: 1.702 },
)

/** Channels that rotate, of heads of so many. */
function ropes(headDim: number): fc.Arbitrary<RopeShape> {
  const yarn = {
    factor: 8,
    betaFast: 32,
    betaSlow: 1,
    originalContext: 64,
    truncate: false,
    attentionFactor: 1.2,
  }
  return fc.record({
    dims: fc.constantFrom(headDim / 4, headDim / 2, headDim),
    theta: fc.constantFrom(1e4, 1e7),
    yarn: fc.constantFrom(null, yarn, { ...yarn, truncate: true }),
  })
}

function attentions(rope: RopeShape): fc.Arbitrary<AttentionShape> {
  return fc.record({
    kind: fc.constant('full_attention' as const),
    outputGate: fc.boolean(),
    qkNorm: fc.boolean(),
    qkvBias: fc.boolean(),
    outputBias: fc.boolean(),
    rope: fc.constant(rope),
    window: fc.option(fc.integer({ min: 1, max: 20 })),
    sinks: fc.boolean(),
  })
}

/** Of so many experts, of which k are used. */
function routers(experts: number, k: number): fc.Arbitrary<RouterShape> {
  const groupings = [2, 3].flatMap(count =>
    Array.from({ length: count }, (_, i) => ({ count, used: i + 1 })).filter(
      ({ used }) => experts % count === 0 && (used * experts) / count >= k,
    ),
  )
  const common = { bias: fc.boolean(), scale: fc.constantFrom(1, 1.8) }
  return fc.oneof(
    fc.record({
      ...common,
      score: fc.constantFrom('softmax' as const, 'sigmoid' as const),
      order: fc.constant('scoreThenTop' as const),
      selectionBias: fc.boolean(),
      groups: fc.constantFrom(null, ...groupings),
      renormalize: fc.boolean(),
    }),
    fc.record({
      ...common,
      score: fc.constant('softmax' as const),
      order: fc.constant('topThenSoftmax' as const),
      selectionBias: fc.constant(false),
      groups: fc.constant(null),
      renormalize: fc.boolean(),
    }),
  )
}

export interface KindsRequest {
  readonly headDim: number
  readonly experts: number
  readonly k: number
  readonly layers: readonly LayerShape['mixer']['kind'][]
}

/** Expert activation and biases are one for all layers: so is the layout of their records. */
export function randomKinds({ headDim, experts, k, layers }: KindsRequest): fc.Arbitrary<LayerShape[]> {
  const common = fc.record({ rope: ropes(headDim), activation, expertBias: fc.boolean() })
  return common.chain(({ rope, activation: ofExperts, expertBias }) => {
    const moe = fc.record({
      kind: fc.constant('moe' as const),
      router: routers(experts, k),
      shared: fc.constantFrom('none' as const, 'gated' as const, 'plain' as const),
      activation: fc.constant(ofExperts),
      expertBias: fc.constant(expertBias),
    })
    const dense = fc.record({ kind: fc.constant('dense' as const), width: fc.constantFrom(32, 160), activation })
    const feedForward = fc.oneof({ weight: 2, arbitrary: moe }, { weight: 1, arbitrary: dense })
    const list = layers.map(kind =>
      fc.record({
        mixer: kind === 'full_attention' ? attentions(rope) : fc.constant({ kind }),
        feedForward,
      }),
    )
    return fc.tuple(...list)
  })
}
