// Rotary position embedding: the first channels of each head, two for each frequency, rotate in half-split pairs
// (x[i], x[i + half]) by position * frequency[i], times a magnitude; the others pass.
import type { RopeFrequencies } from '../../model/ropeFrequencies.js'

/** Rotates x [heads, headDim] of the token at `position`, in place. */
export function rope(x: Float32Array, position: number, headDim: number, angles: RopeFrequencies): void {
  const { frequencies, magnitude } = angles
  const half = frequencies.length
  for (let i = 0; i < half; i++) {
    const angle = position * frequencies[i]
    const cos = Math.cos(angle) * magnitude
    const sin = Math.sin(angle) * magnitude
    for (let head = 0; head < x.length; head += headDim) {
      const a = x[head + i]
      const b = x[head + i + half]
      x[head + i] = a * cos - b * sin
      x[head + i + half] = b * cos + a * sin
    }
  }
}
