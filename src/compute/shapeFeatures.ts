// What a model's layers ask of a backend beyond the usual: an attention with an output gate and norms of queries and keys, or
// a delta net; experts chosen by a softmax, beside a gated shared one. A backend names what it computes of these, and a model
// that asks for more is refused when it is opened: never wrong numbers.
import { BackendUnavailableError, UnsupportedModelError } from '../errors.js'
import type { LayerShape } from '../model/layers.js'
import type { PackedModel } from '../storage/packedModel.js'
import type { BackendName, BackendOptions } from './backend.js'

export type ShapeFeature =
  | 'attention without an output gate'
  | 'attention without query and key norms'
  | 'biases of attention projections'
  | 'a bias of the attention output'
  | 'YaRN'
  | 'an attention window'
  | 'attention sinks'
  | 'a sigmoid router'
  | 'a router that takes the softmax of the chosen'
  | 'a router bias'
  | 'a selection bias'
  | 'router groups'
  | 'router weights as they are'
  | 'a scale of router weights'
  | 'no shared expert'
  | 'an ungated shared expert'
  | 'biases of experts'
  | 'clamped SwiGLU'
  | 'dense layers'

/** Refuses a model whose layers ask for something that `computed` does not list; 'auto' then goes on to the next backend. */
export function refuseOtherShapes(
  { config }: PackedModel,
  backend: BackendName,
  { automatic }: Pick<BackendOptions, 'automatic'>,
  computed: readonly ShapeFeature[],
): void {
  for (const [layer, shape] of config.layers.entries()) {
    const missing = featuresOf(shape).find(feature => !computed.includes(feature))
    if (missing === undefined) continue
    if (automatic) throw new BackendUnavailableError(backend, `does not compute ${missing} (layer ${layer})`)
    const want = `what the ${backend} backend computes; use another backend`
    throw new UnsupportedModelError(`layer ${layer}`, missing, want)
  }
}

export function featuresOf({ mixer, feedForward }: LayerShape): ShapeFeature[] {
  const features: ShapeFeature[] = []
  const add = (feature: ShapeFeature, isThere: boolean) => {
    if (isThere) features.push(feature)
  }
  if (mixer.kind === 'full_attention') {
    add('attention without an output gate', !mixer.outputGate)
    add('attention without query and key norms', !mixer.qkNorm)
    add('biases of attention projections', mixer.qkvBias)
    add('a bias of the attention output', mixer.outputBias)
    add('YaRN', mixer.rope.yarn !== null)
    add('an attention window', mixer.window !== null)
    add('attention sinks', mixer.sinks)
  }
  add('clamped SwiGLU', feedForward.activation.kind === 'clampedSwiglu')
  add('dense layers', feedForward.kind === 'dense')
  if (feedForward.kind === 'dense') return features
  const { router, shared, expertBias } = feedForward
  add('a sigmoid router', router.score === 'sigmoid')
  add('a router that takes the softmax of the chosen', router.order === 'topThenSoftmax')
  add('a router bias', router.bias)
  add('a selection bias', router.selectionBias)
  add('router groups', router.groups !== null)
  add('router weights as they are', !router.renormalize && router.order === 'scoreThenTop')
  add('a scale of router weights', router.scale !== 1)
  add('no shared expert', shared === 'none')
  add('an ungated shared expert', shared === 'plain')
  add('biases of experts', expertBias)
  return features
}
