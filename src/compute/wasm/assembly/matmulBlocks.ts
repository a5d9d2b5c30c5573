// Weights in blocks (model/blockFormats.ts) × int8 activations. Codes that are not positive come shifted, which the records'
// sums take back. A group's products are one exact integer, so that a vector holds those of four groups; it is scaled and
// added to four float lanes, then the minima (or what shifted codes are too much) times the records' sums, units ascending.
// That is the order of every output, whatever the number of tokens.
//
// One token: codes are unpacked as they are needed. More: a row is unpacked once into scratch, codes as bytes and scales as
// floats, and meets them in turn.
import {
  iq4High, iq4Low, loadBytes4, loadNormalPowers4, loadPowers4, lookUp, mxfp4Book, recordUnit, scaleBytes, spanBytes, splatHalf, twoFactors, UNIT, unitBytes,
} from './blockLayout'
import { TILE_ACCUMULATORS, TILE_ADDRESSES, TILE_RECORDS, TOKEN_TILE } from './layout'
import { dotBytes, loadFloats4, madd, sumLanes } from './simd'

/** `format`: `kernel` of a block format. */
export function matmulBlocks(
  out: usize, outStride: usize, outIndex: usize, weight: usize, scales: usize, format: i32, span: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, act: usize, actStride: usize, actIndex: usize, tokens: i32, scratch: usize,
): void {
  for (let first = 0; first < tokens; first += TOKEN_TILE) {
    const count = min(TOKEN_TILE, tokens - first)
    for (let t = 0; t < count; t++) {
      const from = actIndex ? load<u32>(actIndex + (<usize>(first + t) << 2)) : first + t
      const to = outIndex ? load<u32>(outIndex + (<usize>(first + t) << 2)) : first + t
      store<u32>(scratch + (<usize>t << 2), <u32>(act + <usize>from * actStride))
      store<u32>(scratch + (<usize>t << 2), <u32>(out + <usize>to * outStride), TILE_ADDRESSES)
    }
    if (format == 1) rows<i16, u16, u32>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 2) rows<i32, u16, u16>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 3) rows<i32, u16, i8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 4) rows<u8, u8, u8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 5) rows<u16, u8, i8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 6) rows<u16, u16, u8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else if (format == 7) rows<u32, u16, u8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
    else rows<u32, u8, i8>(weight, scales, span, cols, rowBegin, rowEnd, count, scratch)
  }
}

function rows<C, G, S>(
  weight: usize, scales: usize, span: i32, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  const rowBytes = unitBytes<C>() * <usize>cols / UNIT
  const rowScales = scaleBytes<S, G>(span, cols)
  let first = <usize>rowBegin
  if (tokens == 1 && sizeof<G>() == 2 && !(sizeof<C>() == 4 && isSigned<C>()) && !(cols & 127)) {
    // Two rows share the loads of activations. They are far from each other, as in matmulPaired.
    const half = <usize>(rowEnd - rowBegin) >> 1
    const out = <usize>load<u32>(scratch, TILE_ADDRESSES)
    const record = <usize>load<u32>(scratch)
    for (const middle = first + half; first < middle; first++) {
      const next = first + half
      twoRows<C, S>(
        weight + first * rowBytes, half * rowBytes, scales + first * rowScales, half * rowScales, span, cols, record,
        out + (first << 2), out + (next << 2), scratch,
      )
    }
    first += half
  }
  for (let row = first; row < <usize>rowEnd; row++) {
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
  const mask = i8x16.splat(sizeof<C>() == 1 ? 3 : 15)
  // By way of memory, so that compilers do not take them for constants, which they would make anew in every round.
  if (isSigned<C>()) {
    v128.store(scratch, sizeof<C>() == 2 ? mxfp4Book() : iq4Low(), TILE_ACCUMULATORS + 96)
    v128.store(scratch, iq4High(), TILE_ACCUMULATORS + 112)
  }
  const book = isSigned<C>() ? v128.load(scratch, TILE_ACCUMULATORS + 96) : mask
  const book2 = isSigned<C>() ? v128.load(scratch, TILE_ACCUMULATORS + 112) : mask
  let acc = f32x4.splat(0)
  let x = record
  const end = x + <usize>(cols >> 7) * recordUnit(<i32>(16 * sizeof<G>()))
  if (sizeof<S>() == 1) {
    // A span is one unit or two.
    const bytes = spanBytes<S, G>(span)
    const header: usize = isSigned<S>() ? 2 : 4
    const groups = bytes - header >> (isSigned<S>() ? 0 : 1)
    do {
      const factor = splatHalf(s)
      const factorOfMinima = isSigned<S>() ? factor : splatHalf(s + 2)
      acc = addUnit<C, G, S, u8>(acc, w, s + header, groups, factor, factorOfMinima, x, mask, book, book2, 0)
      w += unitBytes<C>()
      x += recordUnit(<i32>(16 * sizeof<G>()))
      if (span == 256) {
        v128.store(scratch, acc, TILE_ACCUMULATORS) // read by nobody: keeps the loads of the second unit after the first
        acc = addUnit<C, G, S, u8>(acc, w, s + header + 128 / (16 * sizeof<G>()), groups, factor, factorOfMinima, x, mask, book, book2, 0)
        w += unitBytes<C>()
        x += recordUnit(<i32>(16 * sizeof<G>()))
      }
      s += bytes
    } while (x < end)
    return sumLanes(acc)
  }
  const one = f32x4.splat(1)
  if (x < end) {
    do {
      acc = addUnit<C, G, S, u8>(acc, w, s, 0, one, one, x, mask, book, book2, 0)
      v128.store(scratch, acc, TILE_ACCUMULATORS) // read by nobody
      w += unitBytes<C>()
      s += sizeof<S>() == 2 ? 8 : 4
      x += recordUnit(<i32>(16 * sizeof<G>()))
    } while (x < end)
  }
  if (cols & 127) {
    copyTail<C, S>(w, s, cols & 127, scratch)
    const tail = scratch + TILE_ACCUMULATORS
    acc = addUnit<C, G, S, u8>(acc, tail, tail + 64, 0, one, one, x, mask, book, book2, 0)
  }
  return sumLanes(acc)
}

/** `rowOne` for two rows in groups of 32, the second so many bytes further on. */
function twoRows<C, S>(
  w: usize, nextRow: usize, s: usize, nextScale: usize, span: i32, cols: i32, record: usize, out: usize, out2: usize,
  scratch: usize,
): void {
  const mask = i8x16.splat(15)
  if (isSigned<C>()) v128.store(scratch, mxfp4Book(), TILE_ACCUMULATORS + 96)
  const book = isSigned<C>() ? v128.load(scratch, TILE_ACCUMULATORS + 96) : mask
  let acc = f32x4.splat(0)
  let acc2 = f32x4.splat(0)
  let x = record
  let w2 = w + nextRow
  let s2 = s + nextScale
  const end = x + <usize>(cols >> 7) * recordUnit(32)
  // Where scales are products: those of a span, of one unit or two.
  const bytes = sizeof<S>() == 1 ? spanBytes<S, u16>(span) : 0
  const groups = sizeof<S>() == 1 ? <usize>(span >> 5) : 0
  const header: usize = isSigned<S>() ? 2 : 4
  let factor = f32x4.splat(0)
  let factor2 = f32x4.splat(0)
  let minima = f32x4.splat(0)
  let minima2 = f32x4.splat(0)
  let at: usize = 0
  do {
    // Stores keep the compiler from loading all at once, for which there are not enough registers.
    const sums = unitSums<C>(w, x, mask, book)
    v128.store(scratch, sums, TILE_ACCUMULATORS) // read by nobody
    const sums2 = unitSums<C>(w2, x, mask, book)
    v128.store(scratch, sums2, TILE_ACCUMULATORS) // read by nobody
    if (sizeof<S>() == 1 && at == 0) {
      const factors = twoFactors(s, s2)
      factor = v128.shuffle<i32>(factors, factors, 0, 0, 0, 0)
      minima = v128.shuffle<i32>(factors, factors, 1, 1, 1, 1)
      factor2 = v128.shuffle<i32>(factors, factors, 2, 2, 2, 2)
      minima2 = v128.shuffle<i32>(factors, factors, 3, 3, 3, 3)
    }
    const scale = fourScales<S, u8>(s + (sizeof<S>() == 1 ? header + at : 0), factor)
    const scale2 = fourScales<S, u8>(s2 + (sizeof<S>() == 1 ? header + at : 0), factor2)
    const xScale = v128.load(x, 128)
    const xSum = v128.load(x, 144)
    acc = madd(f32x4.convert_i32x4_s(sums), f32x4.mul(scale, xScale), acc)
    acc2 = madd(f32x4.convert_i32x4_s(sums2), f32x4.mul(scale2, xScale), acc2)
    acc = madd(isMinima<S>() ? fourMinima<u8>(s + header + at, groups, minima) : scale, xSum, acc)
    acc2 = madd(isMinima<S>() ? fourMinima<u8>(s2 + header + at, groups, minima2) : scale2, xSum, acc2)
    w += unitBytes<C>()
    w2 += unitBytes<C>()
    x += recordUnit(32)
    if (sizeof<S>() == 1) {
      at += 4
      if (at == groups) {
        at = 0
        s += bytes
        s2 += bytes
      }
    } else {
      s += sizeof<S>() == 2 ? 8 : 4
      s2 += sizeof<S>() == 2 ? 8 : 4
    }
  } while (x < end)
  store<f32>(out, sumLanes(acc))
  store<f32>(out2, sumLanes(acc2))
}

// @ts-ignore: decorator
@inline
function unitSums<C>(w: usize, x: usize, mask: v128, book: v128): v128 {
  return quarters<C>(halfUnit<C, u8>(w, x, mask, book), halfUnit<C, u16>(w, x, mask, book))
}

/** Two groups of 32, the first of a unit (H = u8) or the last (u16), as `halves`. */
// @ts-ignore: decorator
@inline
function halfUnit<C, H>(w: usize, x: usize, mask: v128, book: v128): v128 {
  if (sizeof<H>() == 1) return halves(group32<C, u8, u8>(w, x, mask, book), group32<C, u8, u16>(w, x, mask, book))
  return halves(group32<C, u8, u32>(w, x, mask, book), group32<C, u8, u64>(w, x, mask, book))
}

/** Codes below 16: sixteen products fit 16 bits, else eight (of at most 31). */
// @ts-ignore: decorator
@inline
function quarters<C>(ab: v128, cd: v128): v128 {
  return sizeof<C>() == 2 && !isSigned<C>() ? quarters16(ab, cd) : quarters32(ab, cd)
}

/** The codes and scales of a unit that is not whole, with zeros behind them. */
// @ts-ignore: decorator
@inline
function copyTail<C, S>(w: usize, s: usize, cols: i32, scratch: usize): void {
  const tail = scratch + TILE_ACCUMULATORS
  memory.fill(tail, 0, 80)
  for (let i: usize = 0; i < <usize>(cols >> 5); i++) {
    v128.store(tail + (i << 4), v128.load(w + (i << 4)))
    if (sizeof<S>() == 2) store<u16>(tail + (i << 1), load<u16>(s + (i << 1)), 64)
    else store<u8>(tail + i, load<u8>(s + i), 64)
  }
}

/** E: u8 takes packed codes and scales, u16 those of `expand`, whose second plane of codes lies `plane` bytes on. */
// @ts-ignore: decorator
@inline
function addUnit<C, G, S, E>(
  acc: v128, w: usize, s: usize, groups: usize, factor: v128, factorOfMinima: v128, x: usize, mask: v128, book: v128, book2: v128, plane: usize,
): v128 {
  if (sizeof<G>() == 2) {
    const scale = fourScales<S, E>(s, factor)
    acc = madd(f32x4.convert_i32x4_s(sums32<C, E>(w, x, mask, book, book2, plane)), f32x4.mul(scale, v128.load(x, 128)), acc)
    return madd(isMinima<S>() ? fourMinima<E>(s, groups, factorOfMinima) : scale, v128.load(x, 144), acc)
  }
  const scale = fourScales<S, E>(s, factor)
  acc = madd(f32x4.convert_i32x4_s(sums16<C, E, u8>(w, x, mask)), f32x4.mul(scale, v128.load(x, 128)), acc)
  acc = madd(isMinima<S>() ? fourMinima<E>(s, groups, factorOfMinima) : scale, v128.load(x, 160), acc)
  const next = s + (sizeof<E>() == 1 ? 4 : 16)
  const scale2 = fourScales<S, E>(next, factor)
  acc = madd(f32x4.convert_i32x4_s(sums16<C, E, u16>(w, x, mask)), f32x4.mul(scale2, v128.load(x, 144)), acc)
  return madd(isMinima<S>() ? fourMinima<E>(next, groups, factorOfMinima) : scale2, v128.load(x, 176), acc)
}

// @ts-ignore: decorator
@inline
function isMinima<S>(): bool {
  return sizeof<S>() == 1 && !isSigned<S>()
}

// @ts-ignore: decorator
@inline
function fourScales<S, E>(s: usize, factor: v128): v128 {
  if (sizeof<E>() == 2) return v128.load(s)
  if (sizeof<S>() == 2) return loadFloats4(s, true)
  if (sizeof<S>() == 4) return loadNormalPowers4(s)
  return f32x4.mul(loadBytes4(s), factor)
}

// @ts-ignore: decorator
@inline
function fourMinima<E>(s: usize, groups: usize, factor: v128): v128 {
  if (sizeof<E>() == 2) return v128.load(s + groups)
  return f32x4.mul(loadBytes4(s + groups), factor)
}

/** The sums of four groups of 32. */
// @ts-ignore: decorator
@inline
function sums32<C, E>(w: usize, x: usize, mask: v128, book: v128, book2: v128, plane: usize): v128 {
  if (sizeof<C>() == 4 && isSigned<C>()) {
    const a = wideGroup<E, u8>(w, x, mask, book, book2, plane)
    const b = wideGroup<E, u16>(w, x, mask, book, book2, plane)
    const c = wideGroup<E, u32>(w, x, mask, book, book2, plane)
    const d = wideGroup<E, u64>(w, x, mask, book, book2, plane)
    const ab = i32x4.add(v128.shuffle<i64>(a, b, 0, 2), v128.shuffle<i64>(a, b, 1, 3))
    const cd = i32x4.add(v128.shuffle<i64>(c, d, 0, 2), v128.shuffle<i64>(c, d, 1, 3))
    return i32x4.add(v128.shuffle<i32>(ab, cd, 0, 2, 4, 6), v128.shuffle<i32>(ab, cd, 1, 3, 5, 7))
  }
  const a = group32<C, E, u8>(w, x, mask, book)
  const b = group32<C, E, u16>(w, x, mask, book)
  const ab = halves(a, b)
  const c = group32<C, E, u32>(w, x, mask, book)
  const d = group32<C, E, u64>(w, x, mask, book)
  const cd = halves(c, d)
  return quarters<C>(ab, cd)
}

/** [a, a, a, a, b, b, b, b] of 16 bits, each the sum of two lanes. */
// @ts-ignore: decorator
@inline
function halves(a: v128, b: v128): v128 {
  return i16x8.add(v128.shuffle<i64>(a, b, 0, 2), v128.shuffle<i64>(a, b, 1, 3))
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

/** Eight sums of four products of group I (u8, u16, u32, u64: 0 to 3). */
// @ts-ignore: decorator
@inline
function group32<C, E, I>(w: usize, x: usize, mask: v128, book: v128): v128 {
  const x0 = v128.load(x, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32)
  const x1 = v128.load(x, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32 + 16)
  if (sizeof<E>() == 2 || sizeof<C>() == 4) {
    const q0 = v128.load(w, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32)
    const q1 = v128.load(w, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32 + 16)
    return i16x8.add(pairs(x0, q0), pairs(x1, q1))
  }
  const packed = v128.load(w, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 16)
  const q0 = v128.and(packed, mask)
  const q1 = v128.and(i16x8.shr_u(packed, 4), mask)
  if (isSigned<C>()) return i16x8.add(pairs(x0, lookUp(book, q0)), pairs(x1, lookUp(book, q1)))
  return i16x8.add(pairs(x0, q0), pairs(x1, q1))
}

/** Four sums of eight products of group I: codes of 8 bits as two nibbles, low + 16 · high. */
// @ts-ignore: decorator
@inline
function wideGroup<E, I>(w: usize, x: usize, mask: v128, book: v128, book2: v128, plane: usize): v128 {
  const x0 = v128.load(x, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32)
  const x1 = v128.load(x, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32 + 16)
  let low: v128
  let high: v128
  if (sizeof<E>() == 2) {
    low = i16x8.add(
      pairs(x0, v128.load(w, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32)),
      pairs(x1, v128.load(w, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32 + 16)),
    )
    high = i16x8.add(
      pairs(x0, v128.load(w + plane, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32)),
      pairs(x1, v128.load(w + plane, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 32 + 16)),
    )
  } else {
    const packed = v128.load(w, (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 16)
    const q0 = v128.and(packed, mask)
    const q1 = v128.and(i16x8.shr_u(packed, 4), mask)
    low = i16x8.add(pairs(x0, lookUp(book, q0)), pairs(x1, lookUp(book, q1)))
    high = i16x8.add(pairs(x0, lookUp(book2, q0)), pairs(x1, lookUp(book2, q1)))
  }
  return i32x4.add(i32x4.dot_i16x8_s(low, i16x8.splat(1)), i32x4.dot_i16x8_s(high, i16x8.splat(16)))
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
  if (sizeof<E>() == 2 || sizeof<C>() == 4) {
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
  // 8 bits: a vector is a group. 4 bits: two vectors are two groups, half and half. 2 bits: four are four.
  if (sizeof<C>() == 4) return quarters32(halves(p0, p1), halves(p2, p3))
  if (sizeof<C>() == 2) return quarters16(i16x8.add(p0, p1), i16x8.add(p2, p3))
  return i32x4.extadd_pairwise_i16x8_s(i16x8.add(i16x8.add(p0, p1), i16x8.add(p2, p3)))
}

/** Sums of neighbours' products; q below 128. */
// @ts-ignore: decorator
@inline
function pairs(x: v128, q: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return dotBytes(x, q)
  const low = i16x8.extmul_low_i8x16_s(x, q)
  const high = i16x8.extmul_high_i8x16_s(x, q)
  return i16x8.add(
    v128.shuffle<i16>(low, high, 0, 2, 4, 6, 8, 10, 12, 14),
    v128.shuffle<i16>(low, high, 1, 3, 5, 7, 9, 11, 13, 15),
  )
}

// --- a row in scratch: floats scales, floats minima, bytes codes, for IQ4 a second plane of bytes ---------------------

// @ts-ignore: decorator
@inline
function paddedUnits(cols: i32): usize {
  return <usize>((cols + 127) >> 7)
}

/** Bytes of the floats of `expand`, of one kind. */
// @ts-ignore: decorator
@inline
function expandedFloats<G>(cols: i32): usize {
  return paddedUnits(cols) * (512 / (16 * sizeof<G>()))
}

function expand<C, G, S>(w: usize, s: usize, span: i32, cols: i32, scratch: usize): void {
  const mask = i8x16.splat(sizeof<C>() == 1 ? 3 : 15)
  const floats = scratch + TILE_RECORDS
  widenScales<S, G, u8>(s, span, cols, floats, scratch)
  const units = paddedUnits(cols)
  const plane = units << 7
  let to = floats + 2 * expandedFloats<G>(cols)
  const end = to + plane
  while (to < end) {
    if (cols & 127 && to + 128 == end) {
      copyTail<C, S>(w, s, cols & 127, scratch)
      w = scratch + TILE_ACCUMULATORS
    }
    if (sizeof<C>() == 4 && !isSigned<C>()) {
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
        const q0 = v128.and(packed, mask)
        const q1 = v128.and(i16x8.shr_u(packed, 4), mask)
        if (sizeof<C>() == 4) {
          v128.store(to + i, lookUp(iq4Low(), q0))
          v128.store(to + i, lookUp(iq4Low(), q1), 16)
          v128.store(to + i + plane, lookUp(iq4High(), q0))
          v128.store(to + i + plane, lookUp(iq4High(), q1), 16)
        } else {
          v128.store(to + i, isSigned<C>() ? lookUp(mxfp4Book(), q0) : q0)
          v128.store(to + i, isSigned<C>() ? lookUp(mxfp4Book(), q1) : q1, 16)
        }
      }
    }
    w += unitBytes<C>()
    to += 128
  }
}

/** A row's scales as floats, then (a row of floats further on) its minima. P: u16 has subnormal ones too. */
export function widenScales<S, G, P>(s: usize, span: i32, cols: i32, to: usize, scratch: usize): void {
  const minima = expandedFloats<G>(cols)
  if (sizeof<S>() == 1) {
    const groups = <usize>(span / <i32>(16 * sizeof<G>()))
    const bytes = spanBytes<S, G>(span)
    for (let left = cols / span; left > 0; left--) {
      const factor = splatHalf(s)
      const first = s + (isMinima<S>() ? 4 : 2)
      const factorOfMinima = isMinima<S>() ? splatHalf(s + 2) : factor
      for (let g: usize = 0; g < groups; g += 4) {
        v128.store(to, f32x4.mul(loadBytes4(first + g), factor))
        if (isMinima<S>()) v128.store(to + minima, f32x4.mul(loadBytes4(first + groups + g), factorOfMinima))
        to += 16
      }
      s += bytes
    }
    return
  }
  for (let left = cols >> 7; left > 0; left--) {
    v128.store(to, sizeof<S>() == 2 ? loadFloats4(s, true) : sizeof<P>() == 1 ? loadNormalPowers4(s) : loadPowers4(s))
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
    v128.store(to, sizeof<S>() == 2 ? loadFloats4(tail, true) : sizeof<P>() == 1 ? loadNormalPowers4(tail) : loadPowers4(tail))
  }
}

function rowExpanded<C, G, S>(cols: i32, record: usize, scratch: usize): f32 {
  const minima = expandedFloats<G>(cols)
  const plane = paddedUnits(cols) << 7
  const none = f32x4.splat(0)
  let s = scratch + TILE_RECORDS
  let w = s + 2 * minima
  let x = record
  let acc = f32x4.splat(0)
  const end = w + plane
  do {
    acc = addUnit<C, G, S, u16>(acc, w, s, minima, none, none, x, none, none, none, plane)
    w += 128
    s += 512 / (16 * sizeof<G>())
    x += recordUnit(<i32>(16 * sizeof<G>()))
  } while (w < end)
  return sumLanes(acc)
}
