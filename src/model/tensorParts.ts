// The tensors of a layer as lists, whatever its kinds are: for those that move, count or check them all alike.
import type { LayerTensors, Matrix, ModelTensors, Vector } from './tensors.js'

/** All layers, that of a head for drafts last. */
export function allLayers({ layers, draftHead }: ModelTensors): readonly LayerTensors[] {
  return draftHead === null ? layers : [...layers, draftHead.layer]
}

/** Mixer first, then router, shared expert or dense block: the order of the file. */
export function layerMatrices(layer: LayerTensors): Matrix[] {
  return parts(layer).filter(part => 'rows' in part)
}

export function layerVectors(layer: LayerTensors): Vector[] {
  return parts(layer).filter(part => 'data' in part)
}

function parts({ inputNorm, postAttentionNorm, mixer, feedForward }: LayerTensors): (Matrix | Vector)[] {
  const { kind: _, shape: __, ...mixing } = mixer
  const all: (Matrix | Vector | null)[] = [inputNorm, ...Object.values(mixing), postAttentionNorm]
  if (feedForward.kind === 'dense') all.push(...Object.values(feedForward.expert))
  else {
    const { router, routerBias, selectionBias, shared } = feedForward
    all.push(router, routerBias, selectionBias)
    if (shared !== null) all.push(shared.gate, ...Object.values(shared.expert))
  }
  return all.filter(part => part !== null)
}
