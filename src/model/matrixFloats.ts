// Where floats lie in a stored matrix: its scales and biases, or the weights themselves where they are not quantized. All
// other bytes are integers, of which any value is a good one.
import type { FloatType } from './floats.js'
import type { ByteRange, Matrix } from './tensors.js'

export interface FloatRange extends ByteRange {
  readonly kind: 'weights' | 'scales' | 'biases'
  readonly type: FloatType
}

/** Blocks have halves among their scales, which were looked at when they were packed. */
export function floatRanges(matrix: Matrix): FloatRange[] {
  if (matrix.kind === 'blocks') return []
  if (matrix.kind === 'plain') return [{ kind: 'weights', type: matrix.type, ...matrix.weight }]
  const { scaleType: type, scales, biases } = matrix
  return [
    { kind: 'scales', type, ...scales },
    { kind: 'biases', type, ...biases },
  ]
}
