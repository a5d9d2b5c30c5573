// Weights in blocks (model/blockFormats.ts) × int8 activations. Four-bit codes in groups of 32 have files of their own
// (matmulNibbles.as.ts), and so has Q6_K (matmulBytes.as.ts); here are the others: Q2_K, Q3_K, Q5_K, whose scales are products. Codes
// that are not positive come shifted, which the records' sums take back. A group's products are one exact integer, so that a
// vector holds those of four groups; it is scaled and added to four float lanes, then the minima (or what shifted codes are
// too much) times the records' sums, units ascending. That is the order of every output, whatever the number of tokens.
//
// One token: codes are unpacked as they are needed. More: a row is unpacked once into scratch, codes as bytes and scales as
// floats, and meets them in turn.
import { loadBytes4, recordUnit, scaleBytes, spanBytes, splatHalf, UNIT, unitBytes } from './blocks.as'
import { widenScales, widenedBytes } from './blocks.as'
import { kept } from '../assembly/simd.as'
import { storeAddresses, TILE_ACCUMULATORS, TILE_ADDRESSES, TILE_RECORDS, TOKEN_TILE } from './layout.as'
import { bytesMany } from './matmulBytes.as'
import { nibblesOne } from './matmulNibbles.as'
import { nibblesMany } from './matmulNibblesMany.as'
import { halves, pairs } from './nibbleSums.as'
import { madd, sumLanes } from '../assembly/simd.as'

/** `format`: `kernel` of a block format. */
export function matmulBlocks(
  out: usize, outStride: usize, outIndex: usize, weight: usize, scales: usize, format: i32, span: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, act: usize, actStride: usize, actIndex: usize, tokens: i32, scratch: usize,
): void {
  for (let first = 0; first < tokens; first += TOKEN_TILE) {
    const count = min(TOKEN_TILE, tokens - first)
    storeAddresses(out, outStride, outIndex, act, actStride, actIndex, first, count, scratch)
    if (format == 1) nibbles<i16, u32>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 2) nibbles<i32, u16>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 3) nibbles<i32, i8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 4) rows<u8, u8, u8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 5) rows<u16, u8, i8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 6) nibbles<u16, u8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 7) rows<u32, u16, u8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else bytesMany(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
  }
}

function nibbles<C, S>(
  weight: usize, scales: usize, span: i32, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  if (tokens == 1) nibblesOne<C, S>(weight, scales, span, cols, rowBegin, rowEnd, scratch, scratch)
  else nibblesMany<C, S>(weight, scales, span, cols, rowBegin, rowEnd, tokens, scratch)
}

function rows<C, G, S>(
  weight: usize, scales: usize, span: i32, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  const rowBytes = unitBytes<C>() * <usize>cols / UNIT
  const rowScales = scaleBytes<S, G>(span, cols)
  for (let row = <usize>rowBegin; row < <usize>rowEnd; row++) {
    const w = weight + row * rowBytes
    const s = scales + row * rowScales
    if (tokens == 1) {
      const out = <usize>load<u32>(scratch, TILE_ADDRESSES)
      store<f32>(out + (row << 2), rowOne<C, G, S>(w, s, span, cols, <usize>load<u32>(scratch), scratch))
      continue
    }
    expand<C, G, S>(w, s, span, cols, scratch)
    for (let address = scratch, end = scratch + (<usize>tokens << 2); address < end; address += 4) {
      const sum = rowExpanded<C, G, S>(cols, <usize>load<u32>(address), scratch)
      store<f32>(<usize>load<u32>(address, TILE_ADDRESSES) + (row << 2), sum)
    }
  }
}

function rowOne<C, G, S>(w: usize, s: usize, span: i32, cols: i32, record: usize, scratch: usize): f32 {
  const mask = kept(i8x16.splat(sizeof<C>() == 1 ? 3 : 15))
  let acc = f32x4.splat(0)
  let x = record
  const end = x + <usize>(cols >> 7) * recordUnit(<i32>(16 * sizeof<G>()))
  // A span is one unit or two.
  const bytes = spanBytes<S, G>(span)
  const header: usize = isSigned<S>() ? 2 : 4
  const groups = bytes - header >> (isSigned<S>() ? 0 : 1)
  do {
    const factor = splatHalf(s)
    const factorOfMinima = isSigned<S>() ? factor : splatHalf(s + 2)
    acc = addUnit<C, G, S, u8>(acc, w, s + header, groups, factor, factorOfMinima, x, mask)
    w += unitBytes<C>()
    x += recordUnit(<i32>(16 * sizeof<G>()))
    if (span == 256) {
      v128.store(scratch, acc, TILE_ACCUMULATORS) // read by nobody: keeps the loads of the second unit after the first
      acc = addUnit<C, G, S, u8>(acc, w, s + header + 128 / (16 * sizeof<G>()), groups, factor, factorOfMinima, x, mask)
      w += unitBytes<C>()
      x += recordUnit(<i32>(16 * sizeof<G>()))
    }
    s += bytes
  } while (x < end)
  return sumLanes(acc)
}

/** E: u8 takes packed codes and scales, u16 those of `expand`. */
// @ts-ignore: decorator
@inline
function addUnit<C, G, S, E>(
  acc: v128, w: usize, s: usize, groups: usize, factor: v128, factorOfMinima: v128, x: usize, mask: v128,
): v128 {
  if (sizeof<G>() == 2) {
    const scale = fourScales<E>(s, factor)
    acc = madd(f32x4.convert_i32x4_s(sums32(w, x)), f32x4.mul(scale, v128.load(x, 128)), acc)
    return madd(isSigned<S>() ? scale : fourScales<E>(s + groups, factorOfMinima), v128.load(x, 144), acc)
  }
  const scale = fourScales<E>(s, factor)
  acc = madd(f32x4.convert_i32x4_s(sums16<C, E, u8>(w, x, mask)), f32x4.mul(scale, v128.load(x, 128)), acc)
  acc = madd(isSigned<S>() ? scale : fourScales<E>(s + groups, factorOfMinima), v128.load(x, 160), acc)
  const next = s + (sizeof<E>() == 1 ? 4 : 16)
  const scale2 = fourScales<E>(next, factor)
  acc = madd(f32x4.convert_i32x4_s(sums16<C, E, u16>(w, x, mask)), f32x4.mul(scale2, v128.load(x, 144)), acc)
  return madd(isSigned<S>() ? scale2 : fourScales<E>(next + groups, factorOfMinima), v128.load(x, 176), acc)
}

/** Scales or minima of four groups. */
// @ts-ignore: decorator
@inline
function fourScales<E>(s: usize, factor: v128): v128 {
  return sizeof<E>() == 2 ? v128.load(s) : f32x4.mul(loadBytes4(s), factor)
}

/** The sums of four groups of 32 codes of 8 bits, of at most 31: eight products fit 16 bits. */
// @ts-ignore: decorator
@inline
function sums32(w: usize, x: usize): v128 {
  const ab = halves(group32<u8>(w, x), group32<u16>(w, x))
  const cd = halves(group32<u32>(w, x), group32<u64>(w, x))
  return quarters32(ab, cd)
}

/** Eight sums of four products of group I (u8, u16, u32, u64: 0 to 3). */
// @ts-ignore: decorator
@inline
function group32<I>(w: usize, x: usize): v128 {
  const x0 = v128.load(x, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32)
  const x1 = v128.load(x, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32 + 16)
  const q0 = v128.load(w, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32)
  const q1 = v128.load(w, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32 + 16)
  return i16x8.add(pairs(x0, q0), pairs(x1, q1))
}

/** [a, b, c, d] of two vectors of `halves`, added up in 16 bits. */
// @ts-ignore: decorator
@inline
function quarters16(ab: v128, cd: v128): v128 {
  const pairs = i16x8.add(v128.shuffle<i32>(ab, cd, 0, 2, 4, 6), v128.shuffle<i32>(ab, cd, 1, 3, 5, 7))
  return i32x4.extadd_pairwise_i16x8_s(pairs)
}

/** The same, added up in 32 bits. */
// @ts-ignore: decorator
@inline
function quarters32(ab: v128, cd: v128): v128 {
  const first = i32x4.extadd_pairwise_i16x8_s(ab)
  const second = i32x4.extadd_pairwise_i16x8_s(cd)
  return i32x4.add(v128.shuffle<i32>(first, second, 0, 2, 4, 6), v128.shuffle<i32>(first, second, 1, 3, 5, 7))
}

/** The sums of four groups of 16: the first of the unit (H = u8) or the last (u16). */
// @ts-ignore: decorator
@inline
function sums16<C, E, H>(w: usize, x: usize, mask: v128): v128 {
  const x0 = v128.load(x, (sizeof<H>() - 1) * 64)
  const x1 = v128.load(x, (sizeof<H>() - 1) * 64 + 16)
  const x2 = v128.load(x, (sizeof<H>() - 1) * 64 + 32)
  const x3 = v128.load(x, (sizeof<H>() - 1) * 64 + 48)
  let q0: v128
  let q1: v128
  let q2: v128
  let q3: v128
  if (sizeof<E>() == 2) {
    q0 = v128.load(w, (sizeof<H>() - 1) * 64)
    q1 = v128.load(w, (sizeof<H>() - 1) * 64 + 16)
    q2 = v128.load(w, (sizeof<H>() - 1) * 64 + 32)
    q3 = v128.load(w, (sizeof<H>() - 1) * 64 + 48)
  } else if (sizeof<C>() == 2) {
    const a = v128.load(w, (sizeof<H>() - 1) * 32)
    const b = v128.load(w, (sizeof<H>() - 1) * 32 + 16)
    q0 = v128.and(a, mask)
    q1 = v128.and(i16x8.shr_u(a, 4), mask)
    q2 = v128.and(b, mask)
    q3 = v128.and(i16x8.shr_u(b, 4), mask)
  } else {
    const a = v128.load(w, (sizeof<H>() - 1) * 16)
    q0 = v128.and(a, mask)
    q1 = v128.and(i16x8.shr_u(a, 2), mask)
    q2 = v128.and(i16x8.shr_u(a, 4), mask)
    q3 = v128.and(i16x8.shr_u(a, 6), mask)
  }
  const p0 = pairs(x0, q0)
  const p1 = pairs(x1, q1)
  const p2 = pairs(x2, q2)
  const p3 = pairs(x3, q3)
  // 4 bits: two vectors are two groups, half and half. 2 bits: four are four.
  if (sizeof<C>() == 2) return quarters16(i16x8.add(p0, p1), i16x8.add(p2, p3))
  return i32x4.extadd_pairwise_i16x8_s(i16x8.add(i16x8.add(p0, p1), i16x8.add(p2, p3)))
}

// --- a row in scratch: floats scales, floats minima, bytes codes ------------------------------------------------------

function expand<C, G, S>(w: usize, s: usize, span: i32, cols: i32, scratch: usize): void {
  const mask = kept(i8x16.splat(sizeof<C>() == 1 ? 3 : 15))
  const floats = scratch + TILE_RECORDS
  widenScales<S, G>(s, span, cols, floats, scratch)
  let to = floats + 2 * widenedBytes<G>(cols)
  const end = to + <usize>cols
  while (to < end) {
    if (sizeof<C>() == 4) {
      for (let i: usize = 0; i < 128; i += 16) v128.store(to + i, v128.load(w + i))
    } else if (sizeof<C>() == 1) {
      for (let i: usize = 0; i < 128; i += 64) {
        const packed = v128.load(w + (i >> 2))
        v128.store(to + i, v128.and(packed, mask))
        v128.store(to + i, v128.and(i16x8.shr_u(packed, 2), mask), 16)
        v128.store(to + i, v128.and(i16x8.shr_u(packed, 4), mask), 32)
        v128.store(to + i, v128.and(i16x8.shr_u(packed, 6), mask), 48)
      }
    } else {
      for (let i: usize = 0; i < 128; i += 32) {
        const packed = v128.load(w + (i >> 1))
        v128.store(to + i, v128.and(packed, mask))
        v128.store(to + i, v128.and(i16x8.shr_u(packed, 4), mask), 16)
      }
    }
    w += unitBytes<C>()
    to += 128
  }
}

function rowExpanded<C, G, S>(cols: i32, record: usize, scratch: usize): f32 {
  const minima = widenedBytes<G>(cols)
  const none = f32x4.splat(0)
  let s = scratch + TILE_RECORDS
  let w = s + 2 * minima
  let x = record
  let acc = f32x4.splat(0)
  const end = w + <usize>cols
  do {
    acc = addUnit<C, G, S, u16>(acc, w, s, minima, none, none, x, none)
    w += 128
    s += 512 / (16 * sizeof<G>())
    x += recordUnit(<i32>(16 * sizeof<G>()))
  } while (w < end)
  return sumLanes(acc)
}
