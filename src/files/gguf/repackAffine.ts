// From the codes of GGUF blocks to the packed folder's affine layout (w = s * q + b, groups of 32, F16 scales), without loss: for
// types with one half as scale of 32 values, and perhaps one as bias.
import { float32ToFloat16 } from '../../model/floats.js'
import { type BlockForm, type Codes, widenHalf } from './blockValues.js'

export const RELAY_GROUP = 32

/** Affine rows, as model/quantize.ts has them; scales and biases are bits of F16. */
export interface AffineRows {
  readonly weight: Uint32Array
  readonly scales: Uint16Array
  readonly biases: Uint16Array
}

export function allocateAffine(values: number, bits: 4 | 8): AffineRows {
  return {
    weight: new Uint32Array((values * bits) / 32),
    scales: new Uint16Array(values / RELAY_GROUP),
    biases: new Uint16Array(values / RELAY_GROUP),
  }
}

/**
 * Index of the first group of 32 whose bias is past what a half holds, or -1. A scale that is NaN stays NaN and is found by
 * who reads the rows.
 */
export function relay({ offset }: BlockForm, from: Codes, bits: 4 | 8, out: AffineRows): number {
  const { scales, biases } = from
  for (let g = 0; g < scales.length; g++) {
    const scale = float32ToFloat16(scales[g])
    const bias = float32ToFloat16(offset === 0 ? biases[g] : -offset * widenHalf(scale))
    if (Number.isFinite(scales[g]) && !Number.isFinite(widenHalf(bias))) return g
    out.scales[g] = scale
    out.biases[g] = bias
  }
  packCodes(from.codes, offset, bits, out.weight)
  return -1
}

function packCodes(codes: Int8Array, offset: number, bits: 4 | 8, weight: Uint32Array): void {
  let at = 0
  if (bits === 8) {
    for (let i = 0; i < weight.length; i++, at += 4) {
      weight[i] =
        (codes[at] + offset) |
        ((codes[at + 1] + offset) << 8) |
        ((codes[at + 2] + offset) << 16) |
        ((codes[at + 3] + offset) << 24)
    }
    return
  }
  for (let i = 0; i < weight.length; i++, at += 8) {
    weight[i] =
      (codes[at] + offset) |
      ((codes[at + 1] + offset) << 4) |
      ((codes[at + 2] + offset) << 8) |
      ((codes[at + 3] + offset) << 12) |
      ((codes[at + 4] + offset) << 16) |
      ((codes[at + 5] + offset) << 20) |
      ((codes[at + 6] + offset) << 24) |
      ((codes[at + 7] + offset) << 28)
  }
}
