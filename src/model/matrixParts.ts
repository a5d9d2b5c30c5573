// What a stored matrix consists of, in stored order: weights and, where they are quantized, scales and biases.
import type { ByteRange, Matrix } from './tensors.js'

export function matrixParts(matrix: Matrix): ByteRange[] {
  if (matrix.kind === 'plain') return [matrix.weight]
  if (matrix.kind === 'blocks') return [matrix.weight, matrix.scales]
  return [matrix.weight, matrix.scales, matrix.biases]
}

/** Bytes of all of them. */
export function storedBytes(matrix: Matrix): number {
  return matrixParts(matrix).reduce((sum, { size }) => sum + size, 0)
}
