// What kernels of weights in blocks (model/blockFormats.ts) share: the formats as type parameters,
// scales as floats, and the layout of activation records. A unit is 128 columns. A record is, unit
// by unit, int8 [128] in the order in which codes come out of their bytes, float [128 / group]
// scale and float [128 / group] sum; the last unit is padded with zeros. Sums are already
// multiplied by what takes minima away (-1) or shifts codes (-offset). For MXFP4 and Q6_K a sum is
// two int16 (prepareInput.as.ts).
//
// Type parameters. C, the codes: u8, u16, u32 are 2, 4 and 8 bits (below 64), i16 is 4 bits by
// MXFP4's book, i32 by IQ4's. G, the group: 16 · sizeof<G>. S, the scales: products with minima
// (u8) or without (i8), halves (u16), E8M0 (u32).
import { loadFloats4 } from '../assembly/simd.as'
import { TILE_ACCUMULATORS } from './layout.as'

// @ts-ignore: decorator
@inline
export const UNIT: i32 = 128

/** Bytes of a unit in a record. */
// @ts-ignore: decorator
@inline
export function recordUnit(group: i32): usize {
  return <usize>(group == 16 ? 192 : 160)
}

/** Bytes of a unit of packed codes. */
// @ts-ignore: decorator
@inline
export function unitBytes<C>(): usize {
  return isSigned<C>() ? 64 : 32 * sizeof<C>()
}

/** Bytes of a span's scales where they are products. */
// @ts-ignore: decorator
@inline
export function spanBytes<S, G>(span: i32): usize {
  const groups = <usize>(span / <i32>(16 * sizeof<G>()))
  return isSigned<S>() ? 2 + groups : 4 + 2 * groups
}

/** Bytes of a row's scales. */
// @ts-ignore: decorator
@inline
export function scaleBytes<S, G>(span: i32, cols: i32): usize {
  if (sizeof<S>() == 2) return <usize>(cols >> 5) << 1
  if (sizeof<S>() == 4) return <usize>(cols >> 5)
  return <usize>(cols / span) * spanBytes<S, G>(span)
}

/** Four halves that were sign-extended, as floats; finite ones, as packing has seen to. */
// @ts-ignore: decorator
@inline
export function finiteHalves(h: v128): v128 {
  const moved = v128.and(i32x4.shl(h, 13), i32x4.splat(<i32>0x8fffe000)) // sign, then the magnitude without the exponent's bias
  return f32x4.mul(moved, f32x4.splat(reinterpret<f32>(0x77800000))) // · 2^112
}

/** One half in all lanes. */
// @ts-ignore: decorator
@inline
export function splatHalf(address: usize): v128 {
  return finiteHalves(i32x4.splat(load<i16>(address)))
}

/** Four int8 as floats. */
// @ts-ignore: decorator
@inline
export function loadBytes4(address: usize): v128 {
  return f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(v128.load32_zero(address))))
}

/** Four powers of two, 2^(e - 128); those of e below 2 are subnormal. */
// @ts-ignore: decorator
@inline
export function loadPowers4(address: usize): v128 {
  const e = i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(v128.load32_zero(address)))
  const normal = i32x4.shl(i32x4.sub(e, i32x4.splat(1)), 23)
  const small = i32x4.shl(i32x4.add(e, i32x4.splat(1)), 21)
  return v128.bitselect(small, normal, i32x4.lt_s(e, i32x4.splat(2)))
}

/** MXFP4's book, shifted by 12 to be positive. */
// @ts-ignore: decorator
@inline
export function mxfp4Book(): v128 {
  return i8x16(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)
}

/** IQ4's book, shifted by 127 to be positive: low and high halves of its bytes. */
// @ts-ignore: decorator
@inline
export function iq4Low(): v128 {
  return i8x16(0, 7, 12, 14, 14, 12, 9, 5, 0, 12, 8, 5, 4, 4, 8, 0)
}

// @ts-ignore: decorator
@inline
export function iq4High(): v128 {
  return i8x16(0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13, 15)
}

/** The book of signed codes. */
// @ts-ignore: decorator
@inline
export function signedBook<C>(): v128 {
  if (sizeof<C>() == 2) return i8x16.sub(mxfp4Book(), i8x16.splat(12))
  return i8x16.sub(v128.or(iq4Low(), i8x16.shl(iq4High(), 4)), i8x16.splat(127))
}

/** Entries of a book by indices below 16. */
// @ts-ignore: decorator
@inline
export function lookUp(book: v128, indices: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i8x16.relaxed_swizzle(book, indices)
  return i8x16.swizzle(book, indices)
}

/** Bytes of the floats of one kind: scales, or minima. */
// @ts-ignore: decorator
@inline
export function widenedBytes<G>(cols: i32): usize {
  return <usize>((cols + 127) >> 7) * (512 / (16 * sizeof<G>()))
}

/** A row's scales as floats, one for each group, then (a row of floats further on) its minima. */
export function widenScales<S, G>(s: usize, span: i32, cols: i32, to: usize, scratch: usize): void {
  const minima = widenedBytes<G>(cols)
  if (sizeof<S>() == 1) {
    const groups = <usize>(span / <i32>(16 * sizeof<G>()))
    const bytes = spanBytes<S, G>(span)
    for (let left = cols / span; left > 0; left--) {
      const factor = splatHalf(s)
      const first = s + (!isSigned<S>() ? 4 : 2)
      const factorOfMinima = !isSigned<S>() ? splatHalf(s + 2) : factor
      for (let g: usize = 0; g < groups; g += 4) {
        v128.store(to, f32x4.mul(loadBytes4(first + g), factor))
        if (!isSigned<S>()) v128.store(to + minima, f32x4.mul(loadBytes4(first + groups + g), factorOfMinima))
        to += 16
      }
      s += bytes
    }
    return
  }
  for (let left = cols >> 7; left > 0; left--) {
    v128.store(to, sizeof<S>() == 2 ? loadFloats4(s, true) : loadPowers4(s))
    s += sizeof<S>() == 2 ? 8 : 4
    to += 16
  }
  if (cols & 127) {
    const tail = scratch + TILE_ACCUMULATORS
    v128.store(tail, i32x4.splat(0))
    for (let i: usize = 0; i < <usize>((cols & 127) >> 5); i++) {
      if (sizeof<S>() == 2) store<u16>(tail + (i << 1), load<u16>(s + (i << 1)))
      else store<u8>(tail + i, load<u8>(s + i))
    }
    v128.store(to, sizeof<S>() == 2 ? loadFloats4(tail, true) : loadPowers4(tail))
  }
}
