// Rows of weights in blocks as floats, the same to the bit as in JavaScript: a scale times a code is exact, so that what is
// left after the minimum is rounded once. And products with float32 activations.
import { iq4High, iq4Low, lookUp, mxfp4Book, scaleBytes, unitBytes } from './blocks.as'
import { kept } from '../assembly/simd.as'
import { storeAddresses, TILE_RECORDS, TOKEN_TILE } from './layout.as'
import { widenScales } from './blocks.as'
import { nibblesExact } from './matmulNibblesExact.as'
import { rows } from './matmulPlain.as'

/** out [cols] = a row of a matrix whose first row lies at `weight` and `scales`. */
export function dequantizeBlocks(
  out: usize, weight: usize, scales: usize, format: i32, span: i32, cols: i32, row: i32, scratch: usize,
): void {
  if (format == 1) unpack<i16, u16, u32>(out, weight, scales, span, cols, row, 12, scratch)
  else if (format == 2) unpack<i32, u16, u16>(out, weight, scales, span, cols, row, 127, scratch)
  else if (format == 3) unpack<i32, u16, i8>(out, weight, scales, span, cols, row, 127, scratch)
  else if (format == 4) unpack<u8, u8, u8>(out, weight, scales, span, cols, row, 0, scratch)
  else if (format == 5) unpack<u16, u8, i8>(out, weight, scales, span, cols, row, 4, scratch)
  else if (format == 6) unpack<u16, u16, u8>(out, weight, scales, span, cols, row, 0, scratch)
  else if (format == 7) unpack<u32, u16, u8>(out, weight, scales, span, cols, row, 0, scratch)
  else unpack<u32, u8, i8>(out, weight, scales, span, cols, row, 32, scratch)
}

/**
 * Products with float32 activations. Four-bit codes in groups of 32 take records of `prepareExact` (matmulNibblesExact.as.ts), the others rows
 * of floats; there the order of sums is that of plain floats.
 */
export function matmulBlocksExact(
  out: usize, outStride: usize, outIndex: usize, weight: usize, scales: usize, format: i32, span: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, act: usize, actStride: usize, actIndex: usize, tokens: i32, scratch: usize,
): void {
  for (let first = 0; first < tokens; first += TOKEN_TILE) {
    const count = min(TOKEN_TILE, tokens - first)
    storeAddresses(out, outStride, outIndex, act, actStride, actIndex, first, count, scratch)
    if (format == 1) nibblesExact<i16, u32>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 2) nibblesExact<i32, u16>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 3) nibblesExact<i32, i8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 6) nibblesExact<u16, u8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else plainRows(weight, scales, format, span, cols, rowBegin, rowEnd, count, scratch)
  }
}

function plainRows(
  weight: usize, scales: usize, format: i32, span: i32, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  const floats = scratch + TILE_RECORDS
  const rest = floats + (<usize>cols << 2)
  for (let row = rowBegin; row < rowEnd; row++) {
    dequantizeBlocks(floats, weight, scales, format, span, cols, row, rest)
    rows<f32>(floats - ((<usize>row * <usize>cols) << 2), cols, row, row + 1, tokens, scratch)
  }
}

function unpack<C, G, S>(
  out: usize, weight: usize, scales: usize, span: i32, cols: i32, row: i32, offset: i32, scratch: usize,
): void {
  const w = weight + unitBytes<C>() * <usize>cols / 128 * <usize>row
  const s = scales + scaleBytes<S, G>(span, cols) * <usize>row
  let scale = scratch + TILE_RECORDS
  const minima = <usize>((cols + 127) >> 7) * (512 / (16 * sizeof<G>()))
  widenScales<S, G>(s, span, cols, scale, scratch)
  const shift = i32x4.splat(offset)
  const mask = kept(i8x16.splat(sizeof<C>() == 1 ? 3 : 15))
  let from = w
  for (const end = out + (<usize>cols << 2); out < end; ) {
    if (sizeof<C>() == 4 && !isSigned<C>()) {
      sixteen<G, S>(out, v128.load(from), shift, scale, minima)
      from += 16
      if (sizeof<G>() == 1) scale += 4
      else if (<i32>((end - out) >> 6) & 1) scale += 4 // the second half of a group of 32
      out += 64
      continue
    }
    const packed = v128.load(from)
    from += 16
    if (sizeof<C>() == 1) {
      const q0 = v128.and(packed, mask)
      const q1 = v128.and(i16x8.shr_u(packed, 2), mask)
      const q2 = v128.and(i16x8.shr_u(packed, 4), mask)
      const q3 = v128.and(i16x8.shr_u(packed, 6), mask)
      const low01 = lowBytes(q0, q1)
      const low23 = lowBytes(q2, q3)
      const high01 = highBytes(q0, q1)
      const high23 = highBytes(q2, q3)
      sixteen<G, S>(out, v128.shuffle<i16>(low01, low23, 0, 8, 1, 9, 2, 10, 3, 11), shift, scale, minima)
      sixteen<G, S>(out + 64, v128.shuffle<i16>(low01, low23, 4, 12, 5, 13, 6, 14, 7, 15), shift, scale + 4, minima)
      sixteen<G, S>(out + 128, v128.shuffle<i16>(high01, high23, 0, 8, 1, 9, 2, 10, 3, 11), shift, scale + 8, minima)
      sixteen<G, S>(out + 192, v128.shuffle<i16>(high01, high23, 4, 12, 5, 13, 6, 14, 7, 15), shift, scale + 12, minima)
      scale += 16
      out += 256
      continue
    }
    const q0 = v128.and(packed, mask)
    const q1 = v128.and(i16x8.shr_u(packed, 4), mask)
    let a = lowBytes(q0, q1)
    let b = highBytes(q0, q1)
    if (sizeof<C>() == 4) {
      a = v128.or(lookUp(iq4Low(), a), i8x16.shl(lookUp(iq4High(), a), 4))
      b = v128.or(lookUp(iq4Low(), b), i8x16.shl(lookUp(iq4High(), b), 4))
    } else if (isSigned<C>()) {
      a = lookUp(mxfp4Book(), a)
      b = lookUp(mxfp4Book(), b)
    }
    sixteen<G, S>(out, a, shift, scale, minima)
    if (sizeof<G>() == 1) scale += 4
    sixteen<G, S>(out + 64, b, shift, scale, minima)
    scale += 4
    out += 128
  }
}

/** Sixteen unsigned codes of one group as values. */
// @ts-ignore: decorator
@inline
function sixteen<G, S>(out: usize, codes: v128, shift: v128, scale: usize, minima: usize): void {
  const low = i16x8.extend_low_i8x16_u(codes)
  const high = i16x8.extend_high_i8x16_u(codes)
  four<S>(out, i32x4.extend_low_i16x8_u(low), shift, scale, minima)
  four<S>(out + 16, i32x4.extend_high_i16x8_u(low), shift, scale, minima)
  four<S>(out + 32, i32x4.extend_low_i16x8_u(high), shift, scale, minima)
  four<S>(out + 48, i32x4.extend_high_i16x8_u(high), shift, scale, minima)
}

// @ts-ignore: decorator
@inline
function four<S>(out: usize, codes: v128, shift: v128, scale: usize, minima: usize): void {
  const value = f32x4.mul(f32x4.convert_i32x4_s(i32x4.sub(codes, shift)), v128.load32_splat(scale))
  v128.store(out, sizeof<S>() == 1 && !isSigned<S>() ? f32x4.sub(value, v128.load32_splat(scale + minima)) : value)
}

// @ts-ignore: decorator
@inline
function lowBytes(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
}

// @ts-ignore: decorator
@inline
function highBytes(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
}
