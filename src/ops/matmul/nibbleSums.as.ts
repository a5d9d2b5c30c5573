// What products of four-bit codes in groups of 32 share (Q4_K, MXFP4, IQ4; type parameters of blocks.as.ts): sums of a
// group's products as exact integers, and what they are multiplied by.
//
// Where scales are products of a small integer and a half of the span, a span's sums are multiplied by the integers while they
// are integers, too, then by the activations' scales, and all at once by the half; then its minima (or what shifted codes are
// too much) in the same way. Other scales are floats: a unit's sums times scale and activations' scale. Spans and units are added
// to four float lanes, ascending. That is the order of every output, whatever the number of tokens.
import { finiteHalves, iq4High, iq4Low, loadBytes4, lookUp, mxfp4Book } from './blocks.as'
import { dotBytes, loadFloats4 } from '../assembly/simd.as'

// @ts-ignore: decorator
@inline
export function isProduct<S>(): bool {
  return sizeof<S>() == 1
}

/** Bytes before the integers of a span. */
// @ts-ignore: decorator
@inline
export function headerBytes<S>(): usize {
  return isSigned<S>() ? 2 : 4
}

/** Bytes of a unit's scales where they are no products. */
// @ts-ignore: decorator
@inline
export function unitScaleBytes<S>(): usize {
  return sizeof<S>() == 2 ? 8 : 4
}

/** Whether codes are two planes of bytes, low + 16 · high. */
// @ts-ignore: decorator
@inline
export function isWide<C>(): bool {
  return isSigned<C>() && sizeof<C>() == 4
}

/** Codes of stored numbers. */
// @ts-ignore: decorator
@inline
export function codes<C>(stored: v128, book: v128): v128 {
  return isSigned<C>() ? lookUp(book, stored) : stored
}

/** [a, a, a, a, b, b, b, b] of 16 bits, each the sum of two lanes. */
// @ts-ignore: decorator
@inline
export function halves(a: v128, b: v128): v128 {
  return i16x8.add(v128.shuffle<i64>(a, b, 0, 2), v128.shuffle<i64>(a, b, 1, 3))
}

/** [a, a, b, b, c, c, d, d] of 16 bits, of two vectors of `halves`. */
// @ts-ignore: decorator
@inline
export function quarters(ab: v128, cd: v128): v128 {
  return i16x8.add(v128.shuffle<i32>(ab, cd, 0, 2, 4, 6), v128.shuffle<i32>(ab, cd, 1, 3, 5, 7))
}

/** Words of two groups in turn, the first two of each (H = u8) or the last two (u16). */
// @ts-ignore: decorator
@inline
export function turnWords<H>(a: v128, b: v128): v128 {
  return sizeof<H>() == 1 ? v128.shuffle<i32>(a, b, 0, 4, 1, 5) : v128.shuffle<i32>(a, b, 2, 6, 3, 7)
}

/** Four vectors that are 16 · sizeof<G> bytes apart become four that have four bytes of each. */
// @ts-ignore: decorator
@inline
export function turnGroups<G>(from: usize, to: usize): void {
  const a = v128.load(from)
  const b = v128.load(from, 16 * sizeof<G>())
  const c = v128.load(from, 32 * sizeof<G>())
  const d = v128.load(from, 48 * sizeof<G>())
  const lowAb = turnWords<u8>(a, b)
  const lowCd = turnWords<u8>(c, d)
  const highAb = turnWords<u16>(a, b)
  const highCd = turnWords<u16>(c, d)
  v128.store(to, v128.shuffle<i64>(lowAb, lowCd, 0, 2))
  v128.store(to, v128.shuffle<i64>(lowAb, lowCd, 1, 3), 16 * sizeof<G>())
  v128.store(to, v128.shuffle<i64>(highAb, highCd, 0, 2), 32 * sizeof<G>())
  v128.store(to, v128.shuffle<i64>(highAb, highCd, 1, 3), 48 * sizeof<G>())
}

/**
 * The book of signed codes, by way of memory, so that compilers do not take it for a constant, which they would make anew in every
 * round. IQ4 has two.
 */
export function storeBooks<C>(to: usize): void {
  if (!isSigned<C>()) return
  v128.store(to, isWide<C>() ? iq4Low() : mxfp4Book())
  v128.store(to, iq4High(), 16)
}

/** Sums of neighbours' products; q below 128. */
// @ts-ignore: decorator
@inline
export function pairs(x: v128, q: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return dotBytes(x, q)
  const low = i16x8.extmul_low_i8x16_s(x, q)
  const high = i16x8.extmul_high_i8x16_s(x, q)
  return i16x8.add(
    v128.shuffle<i16>(low, high, 0, 2, 4, 6, 8, 10, 12, 14),
    v128.shuffle<i16>(low, high, 1, 3, 5, 7, 9, 11, 13, 15),
  )
}

/** The copy of a unit that is not whole: codes and scales with zeros behind them. */
export function copyTail<S>(w: usize, s: usize, cols: i32, to: usize): void {
  memory.fill(to, 0, TAIL_BYTES)
  for (let i: usize = 0; i < <usize>(cols >> 5); i++) {
    v128.store(to + (i << 4), v128.load(w + (i << 4)))
    if (sizeof<S>() == 2) store<u16>(to + (i << 1), load<u16>(s + (i << 1)), 64)
    else store<u8>(to + i, load<u8>(s + i), 64)
  }
}

// @ts-ignore: decorator
@inline
export const TAIL_BYTES: usize = 80

/** The integers of four groups' scales, each in two lanes of 16 bits. */
// @ts-ignore: decorator
@inline
export function doubledScales(address: usize): v128 {
  const bytes = v128.load32_zero(address)
  return i16x8.extend_low_i8x16_s(i8x16.shuffle(bytes, bytes, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7))
}

/** Four scales that are no products; those of E8M0 are twice as large as they should be, and 0 where they would be subnormal. */
// @ts-ignore: decorator
@inline
export function fourScales<S>(address: usize): v128 {
  if (sizeof<S>() == 2) return loadFloats4(address, true)
  return i32x4.shl(i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(v128.load32_zero(address))), 23)
}

/** What an output is multiplied by at last. */
// @ts-ignore: decorator
@inline
export function lastFactor<S>(): f32 {
  return sizeof<S>() == 4 ? 0.5 : 1
}

/** The halves at two addresses: [first, after it, second, after it]. */
// @ts-ignore: decorator
@inline
export function spanFactors(address: usize, next: usize): v128 {
  return finiteHalves(i32x4.extend_low_i16x8_s(v128.load32_lane(next, v128.load32_zero(address), 1)))
}

/** Of `spanFactors`, the first address's or the second's: the half of minima, or of scales where there are none. */
// @ts-ignore: decorator
@inline
export function factorOfMinima<S>(factors: v128, isSecond: bool): v128 {
  if (isSecond) return isSigned<S>() ? v128.shuffle<i32>(factors, factors, 2, 2, 2, 2) : v128.shuffle<i32>(factors, factors, 3, 3, 3, 3)
  return isSigned<S>() ? v128.shuffle<i32>(factors, factors, 0, 0, 0, 0) : v128.shuffle<i32>(factors, factors, 1, 1, 1, 1)
}

/** The integers of the minima, or of scales that take shifted codes back, of four groups of a span. */
// @ts-ignore: decorator
@inline
export function fourMinima<S>(span: usize, groups: usize, first: usize): v128 {
  return loadBytes4(span + headerBytes<S>() + first + (isSigned<S>() ? 0 : groups))
}
