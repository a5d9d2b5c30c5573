// Rows of half floats for matrix units, as numbers again.
import { float16ToFloat32 } from '#moeflux/model/floats.js'

const ORDER = [0, 4, 1, 5, 2, 6, 3, 7] // of eight columns, as their codes unpack

/** Half floats are good to 11 bits. */
export const HALVES = { cosine: 0.99999, maxDifference: 1e-3 }

export function fromHalves(words: Uint32Array): Float32Array {
  const halves = new Uint16Array(words.buffer, words.byteOffset, words.length * 2)
  return Float32Array.from(halves, (_, i) => float16ToFloat32(halves[(i & ~7) + ORDER.indexOf(i & 7)]) * 16)
}
