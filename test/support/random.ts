// Seeded random numbers and weights, so that a failing test fails the same way again.
import type { QuantBits, QuantGroup } from '#moeflux/model/tensors.js'
import type { QuantizedWeights } from '#moeflux/ops/matmul/storedWeights.js'

/** mulberry32: uniform in [0, 1). */
export function seededRandom(seed: number): () => number {
  let a = seed >>> 0
  return () => {
    a = (a + 0x6d2b79f5) >>> 0
    let t = a
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Uniform in [-scale, scale). */
export function randomFloats(random: () => number, length: number, scale = 1): Float32Array {
  return Float32Array.from({ length }, () => (2 * random() - 1) * scale)
}

/** A quantized matrix whose scales and biases are exact in BF16, with weights of about ±1/sqrt(cols). */
export function randomQuantized(
  random: () => number,
  rows: number,
  cols: number,
  bits: QuantBits,
  group: QuantGroup,
): QuantizedWeights {
  const packed = Uint32Array.from({ length: (rows * cols * bits) / 32 }, () => random() * 2 ** 32)
  const size = (rows * cols) / group
  const scales = randomFloats(random, size).map(s => toBf16((s + 2) / (Math.sqrt(cols) * 2 ** bits)))
  const biases = scales.map(s => toBf16(-s * 2 ** (bits - 1)))
  return { kind: 'quantized', rows, cols, bits, group, packed, scales, biases }
}

/** The nearest lower BF16 value. */
function toBf16(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer)
  bits[0] &= 0xffff0000
  return new Float32Array(bits.buffer)[0]
}
