// The tolerance bands that comparisons must stay within, and one check for all of them.
import { expect } from 'vitest'
import { cosine, maxDifference } from './closeness.js'

export interface Band {
  readonly cosine: number // at least
  readonly maxDifference: number // at most, relative to the largest wanted value
}

/** Reference against goldens, float32 on both sides, per layer. */
export const GOLDEN: Band = { cosine: 0.9999999, maxDifference: 2e-4 }
/** wasm exact and webgpu exact against the reference, per kernel. */
export const KERNEL: Band = { cosine: 0.99999, maxDifference: 1e-3 }
/** End to end logits of the exact backends against goldens. */
export const EXACT_LOGITS: Band = { cosine: 0.9999, maxDifference: Number.POSITIVE_INFINITY }
/** End to end logits with int8 activations against goldens. */
export const FAST_LOGITS: Band = { cosine: 0.999, maxDifference: Number.POSITIVE_INFINITY }

const CANCELLED = 0.5 // of the size that values have otherwise: their direction is that of rounding errors, too

/**
 * Fails, with both measures in the message, where `got` is not within `band` of `want`. `size`: what such values come to where
 * nothing in them cancels, if they are sums.
 */
export function expectClose(
  got: ArrayLike<number>,
  want: ArrayLike<number>,
  band: Band,
  what = 'values',
  size = 0,
): void {
  expect(got.length, `${what}: length`).toBe(want.length)
  const difference = maxDifference(got, want, size)
  const similarity = cosine(got, want)
  const isDirected = size === 0 || Math.hypot(...Array.from(want)) > CANCELLED * size
  const inside = (!isDirected || similarity >= band.cosine) && difference <= band.maxDifference
  expect(inside, `${what}: cosine ${similarity}, max difference ${difference}`).toBe(true)
}

/** Fails at the first differing bit (NaN equals itself, 0 does not equal -0). */
export function expectSameBits(got: Float32Array, want: Float32Array, what = 'values'): void {
  expect(got.length, `${what}: length`).toBe(want.length)
  const a = new Uint32Array(got.buffer, got.byteOffset, got.length)
  const b = new Uint32Array(want.buffer, want.byteOffset, want.length)
  for (let i = 0; i < a.length; i++) {
    if (a[i] !== b[i]) expect(got[i], `${what}: element ${i} of ${a.length}`).toBe(want[i])
  }
}
