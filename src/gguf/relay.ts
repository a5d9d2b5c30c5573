// From the codes of GGUF blocks to the packed folder's affine layout (w = s * q + b, groups of 32, 16-bit scales), without
// loss where a type allows it. Codes of one scale per 32 values are moved as they are; only scales that are products (of a
// half and six bits) are rounded to a half. Types with a scale per 16 values have no such layout: there two groups share
// a grid of 8 bits, on which the one with the larger scale lies exactly.
import { bfloat16ToFloat32, float16ToFloat32, float32ToBfloat16, float32ToFloat16 } from '../model/floats.js'
import type { BlockForm, Codes } from './blockValues.js'

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
  for (let i = 0; i < weight.length; i++) {
    let word = 0
    for (let shift = 0; shift < 32; shift += 4) word |= (codes[at++] + offset) << shift
    weight[i] = word
  }
}

const values = new Float64Array(RELAY_GROUP)
const steps = new Int32Array(RELAY_GROUP)

/** Two groups of 16 as one of 32. */
function relayPairs(form: BlockForm, from: Codes, target: AffineTarget, out: AffineRows): number {
  const { codes, scales, biases } = from
  for (let g = 0; g < scales.length / 2; g++) {
    for (let i = 0; i < RELAY_GROUP; i++) {
      const half = 2 * g + (i >>> 4)
      values[i] = scales[half] * codes[g * RELAY_GROUP + i] + biases[half]
    }
    const [a, b] = [scales[2 * g], scales[2 * g + 1]]
    const step = Math.abs(b) > Math.abs(a) ? b : a
    const isGood = form.hasBias ? fitRange(target, out, g) : fitGrid(step, target, out, g)
    if (!isGood) return g
    for (let i = 0; i < RELAY_GROUP; i += 4) {
      out.weight[(g * RELAY_GROUP + i) / 4] =
        steps[i] | (steps[i + 1] << 8) | (steps[i + 2] << 16) | (steps[i + 3] << 24)
    }
  }
  return -1
}

/** A grid through 0 whose steps are the larger scale's, or a whole fraction of them as small as 8 bits allow. */
function fitGrid(step: number, target: AffineTarget, out: AffineRows, g: number): boolean {
  const { narrow, widen } = halvesOf(target)
  let low = 0
  let high = 0
  for (const value of values) {
    const at = step === 0 ? 0 : value / step
    if (at < low) low = at
    if (at > high) high = at
  }
  const parts = Math.max(1, Math.floor(Math.min(128 / Math.max(-low, 0.5), 127 / Math.max(high, 0.5))))
  const scale = narrow(step / parts)
  const s = widen(scale)
  const bias = narrow(-128 * s)
  if (isLost(step / parts, s, widen(bias))) return false
  out.scales[g] = scale
  out.biases[g] = bias
  for (let i = 0; i < RELAY_GROUP; i++) {
    const at = s === 0 ? 0 : Math.round(values[i] / s)
    steps[i] = Math.min(255, Math.max(0, at + 128))
  }
  return true
}

/** A grid from the smallest value to the largest, for types whose groups have a bias of their own. */
function fitRange(target: AffineTarget, out: AffineRows, g: number): boolean {
  const { narrow, widen } = halvesOf(target)
  const low = Math.min(...values)
  const high = Math.max(...values)
  const bias = narrow(low)
  const b = widen(bias)
  const wanted = (high - b) / 255
  const scale = narrow(wanted)
  const s = widen(scale)
  if (isLost(wanted, s, b)) return false
  out.scales[g] = scale
  out.biases[g] = bias
  for (let i = 0; i < RELAY_GROUP; i++) {
    const at = s === 0 ? 0 : Math.round((values[i] - b) / s)
    steps[i] = Math.min(255, Math.max(0, at))
  }
  return true
}

/** What was finite is infinite in fewer bits. */
function isLost(wanted: number, scale: number, bias: number): boolean {
  return Number.isFinite(wanted) && !(Number.isFinite(scale) && Number.isFinite(bias))
}

function halvesOf({ scaleType }: AffineTarget) {
  return scaleType === 'F16'
    ? { narrow: float32ToFloat16, widen: float16ToFloat32 }
    : { narrow: float32ToBfloat16, widen: bfloat16ToFloat32 }
}
