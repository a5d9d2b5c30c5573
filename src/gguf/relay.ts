// From the codes of GGUF blocks to the packed folder's affine layout (w = s * q + b, groups of 32, 16-bit scales), without
// loss where a type allows it. Codes of one scale per 32 values are moved as they are; only scales that are products (of a
// half and six bits) are rounded to a half. Types with a scale per 16 values have no such layout: there two groups share
// a grid of 8 bits, on which the one with the larger scale lies exactly.
import { bfloat16ToFloat32, float32ToBfloat16, float32ToFloat16 } from '../model/floats.js'
import { type BlockForm, type Codes, widenHalf } from './blockValues.js'

export const RELAY_GROUP = 32

export interface AffineTarget {
  readonly bits: 4 | 8
  readonly scaleType: 'BF16' | 'F16'
}

/** Affine rows, as quantize.ts has them; scales and biases are bits of `scaleType`. */
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

/** Codes that fit 4 bits need no more; the rest get 8. */
export function affineTargetOf(typeName: string): AffineTarget {
  const bits = typeName === 'Q4_0' || typeName === 'Q4_1' || typeName === 'Q4_K' ? 4 : 8
  // MXFP4's scales are powers of two of a float's whole range, which a half does not have.
  return { bits, scaleType: typeName === 'MXFP4' ? 'BF16' : 'F16' }
}

/**
 * Index of the first group of 32 whose scale or bias is past what the target's scales hold, or -1. A scale that is NaN
 * stays NaN and is found by who reads the rows.
 */
export function relay(form: BlockForm, from: Codes, target: AffineTarget, out: AffineRows): number {
  return form.group === RELAY_GROUP ? relayGroups(form, from, target, out) : relayPairs(form, from, target, out)
}

function relayGroups(form: BlockForm, from: Codes, target: AffineTarget, out: AffineRows): number {
  const { narrow, widen } = halvesOf(target)
  const { scales, biases } = from
  const { offset } = form
  for (let g = 0; g < scales.length; g++) {
    const scale = narrow(scales[g])
    const bias = narrow(offset === 0 ? biases[g] : -offset * widen(scale))
    if (isLost(scales[g], widen(scale), widen(bias))) return g
    out.scales[g] = scale
    out.biases[g] = bias
  }
  packCodes(from.codes, offset, target.bits, out.weight)
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

/** Two groups of 16 as one of 32. */
function relayPairs(form: BlockForm, from: Codes, target: AffineTarget, out: AffineRows): number {
  const fitGroup = form.hasBias ? rangeFit(from, halvesOf(target), out) : gridFit(from, halvesOf(target), out)
  const { buffer, byteOffset, byteLength } = out.weight
  const steps = new Uint8ClampedArray(buffer, byteOffset, byteLength) // 8 bits: a byte each, which rounds and clamps
  for (let g = 0; g < from.scales.length / 2; g++) if (!fitGroup(g, steps)) return g
  return -1
}

/** Decides on scale and bias of group g and writes its steps; false where they are past what the target holds. */
type Fit = (g: number, steps: Uint8ClampedArray) => boolean

/** A grid through 0 whose steps are the larger scale's, or a whole fraction of them as small as 8 bits allow. */
function gridFit({ codes, scales }: Codes, { narrow, widen }: Halves, out: AffineRows): Fit {
  return (g, steps) => {
    const first = scales[2 * g]
    const second = scales[2 * g + 1]
    const step = Math.abs(second) > Math.abs(first) ? second : first
    let low = 0 // in steps
    let high = 0
    for (let half = 0; half < 2; half++) {
      const ratio = step === 0 ? 0 : scales[2 * g + half] / step
      let smallest = 0
      let largest = 0
      for (let i = g * 32 + half * 16, end = i + 16; i < end; i++) {
        const code = codes[i]
        if (code < smallest) smallest = code
        if (code > largest) largest = code
      }
      low = Math.min(low, smallest * ratio, largest * ratio)
      high = Math.max(high, smallest * ratio, largest * ratio)
    }
    const parts = Math.max(1, Math.floor(Math.min(128 / Math.max(-low, 0.5), 127 / Math.max(high, 0.5))))
    const scale = narrow(step / parts)
    const s = widen(scale)
    const bias = narrow(-128 * s)
    if (isLost(step, s, widen(bias))) return false
    out.scales[g] = scale
    out.biases[g] = bias
    for (let half = 0; half < 2; half++) {
      const ratio = s === 0 ? 0 : scales[2 * g + half] / s
      for (let i = g * 32 + half * 16, end = i + 16; i < end; i++) steps[i] = codes[i] * ratio + 128
    }
    return true
  }
}

/** A grid from the smallest value to the largest, for types whose groups have a bias of their own. */
function rangeFit({ codes, scales, biases }: Codes, { narrow, widen }: Halves, out: AffineRows): Fit {
  const values = new Float64Array(RELAY_GROUP)
  return (g, steps) => {
    for (let i = 0; i < RELAY_GROUP; i++) {
      const half = 2 * g + (i >>> 4)
      values[i] = scales[half] * codes[g * RELAY_GROUP + i] + biases[half]
    }
    const bias = narrow(Math.min(...values))
    const b = widen(bias)
    const wanted = (Math.max(...values) - b) / 255
    const scale = narrow(wanted)
    const s = widen(scale)
    if (isLost(wanted, s, b)) return false
    out.scales[g] = scale
    out.biases[g] = bias
    for (let i = 0; i < RELAY_GROUP; i++) steps[g * RELAY_GROUP + i] = s === 0 ? 0 : (values[i] - b) / s
    return true
  }
}

/** What was finite is infinite in fewer bits. */
function isLost(wanted: number, scale: number, bias: number): boolean {
  return Number.isFinite(wanted) && !(Number.isFinite(scale) && Number.isFinite(bias))
}

interface Halves {
  readonly narrow: (value: number) => number
  readonly widen: (bits: number) => number
}

function halvesOf({ scaleType }: AffineTarget): Halves {
  return scaleType === 'F16'
    ? { narrow: float32ToFloat16, widen: widenHalf }
    : { narrow: float32ToBfloat16, widen: bfloat16ToFloat32 }
}
