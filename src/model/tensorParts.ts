// The tensors of a layer as lists, and the byte ranges of a matrix, for code that moves, counts or
// checks all of them alike. Pure.
import type { FloatType } from './floats.js'
import type { ByteRange, LayerTensors, Matrix, ModelTensors, Vector } from './tensors.js'

/** All layers; that of a draft head is the last. */
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

/**
 * The ranges of a stored matrix, in stored order: weights and, if they are quantized, scales and
 * biases.
 */
export function matrixParts(matrix: Matrix): ByteRange[] {
  if (matrix.kind === 'plain') return [matrix.weight]
  if (matrix.kind === 'blocks') return [matrix.weight, matrix.scales]
  return [matrix.weight, matrix.scales, matrix.biases]
}

/** Bytes of all of them. */
export function storedBytes(matrix: Matrix): number {
  return matrixParts(matrix).reduce((sum, { size }) => sum + size, 0)
}

/**
 * Where floats are in a stored matrix: its scales and biases, or its weights if they are not
 * quantized. All other bytes are integers, of which every value is valid. Blocks have f16 among
 * their scales, which are checked when they are packed.
 */
export function floatRanges(matrix: Matrix): FloatRange[] {
  if (matrix.kind === 'blocks') return []
  if (matrix.kind === 'plain') return [{ kind: 'weights', type: matrix.type, ...matrix.weight }]
  const { scaleType: type, scales, biases } = matrix
  return [
    { kind: 'scales', type, ...scales },
    { kind: 'biases', type, ...biases },
  ]
}

interface FloatRange extends ByteRange {
  readonly kind: 'weights' | 'scales' | 'biases'
  readonly type: FloatType
}
