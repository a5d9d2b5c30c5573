// Rows of MXFP4 (codes of E2M1 in blocks of 32, an exponent each) in the packed folder's affine layout, without loss: a
// code is a whole number of halves, so 8 bits and a power of two hold it.
import { float32ToBfloat16 } from '../model/floats.js'

/** Twice what the code means. */
const HALVES = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
const OFFSET = 12
export const MXFP4_BLOCK = 32
const EXPONENT_BIAS = 127
/** Smaller than any weight matters, and its product with the offset is past no float. */
const LARGEST_EXPONENT = 250

export interface Mxfp4Rows {
  readonly weight: Uint8Array // [values]
  readonly scales: Uint16Array // [values / 32], BF16
  readonly biases: Uint16Array // [values / 32], BF16
}

/** Index of the first block whose exponent means NaN or infinity, or -1. */
export function widenMxfp4(blocks: Uint8Array, exponents: Uint8Array, out: Mxfp4Rows): number {
  for (let i = 0; i < blocks.length; i++) {
    out.weight[2 * i] = HALVES[blocks[i] & 15] + OFFSET
    out.weight[2 * i + 1] = HALVES[blocks[i] >> 4] + OFFSET
  }
  for (let block = 0; block < exponents.length; block++) {
    if (exponents[block] > LARGEST_EXPONENT) return block
    const scale = 2 ** (exponents[block] - EXPONENT_BIAS - 1)
    out.scales[block] = float32ToBfloat16(scale)
    out.biases[block] = float32ToBfloat16(-OFFSET * scale)
  }
  return -1
}
