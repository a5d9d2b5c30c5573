// Several tokens' products with four-bit codes in groups of 32 (nibbleSums.as.ts): two rows meet up to eight records at a time. Codes and
// activations are turned so that a vector has four bytes of each of a unit's four groups: its sums come out group by
// group, in the lanes in which matmulNibbles.as.ts has them, without shuffles for each token. IQ4's two planes of codes take
// the place of two rows.
//
// Written for V8's optimizing compiler, as matmulPaired.as.ts is: eight vectors of codes stay in registers while all tokens pass, and
// every token ends with a store.
import { recordUnit, scaleBytes, spanBytes, UNIT, unitBytes } from './blocks.as'
import { TILE_ACCUMULATORS, TILE_ADDRESSES, TILE_RECORDS, tileTokens } from './layout.as'
import { nibblesOne } from './matmulNibbles.as'
import {
  codes, copyTail, doubledScales, factorOfMinima, fourMinima, fourScales, headerBytes, isProduct, isWide, lastFactor, pairs, spanFactors,
  storeBooks, TAIL_BYTES, turnGroups, turnWords, unitScaleBytes,
} from './nibbleSums.as'
import { dotFour, madd, sumLanes } from '../assembly/simd.as'

// In scratch behind TILE_ACCUMULATORS: [8 tokens, 2 rows] accumulators, [2 units, 8 tokens, 2 rows] integer sums, books of codes,
// two tails, and the mask of nibbles and ones, which come from there so that V8 does not make them anew at each use (simd.as.ts). Then the records, unit by unit and token by token: [2 halves, 4] vectors, scale, sum.
//
// Type parameters besides those of blocks.as.ts. N, the tokens: u16 is 2, u32 is 4, u64 is 8. L: units that are added
// up before they are floats, u8 one, u16 two. H: the first (u8) or second (u16) half of a unit.
// @ts-ignore: decorator
@inline
const SUMS: usize = 256
// @ts-ignore: decorator
@inline
const UNIT_SUMS: usize = 256
// @ts-ignore: decorator
@inline
const BOOKS: usize = 768
// @ts-ignore: decorator
@inline
const TAILS: usize = 800
// @ts-ignore: decorator
@inline
const MASK: usize = 960
// @ts-ignore: decorator
@inline
const ONES: usize = 976
// @ts-ignore: decorator
@inline
const TOKEN_BYTES: usize = 160

/** Bytes of a unit of a tile. */
// @ts-ignore: decorator
@inline
function tileUnit<N>(): usize {
  return (sizeof<N>() == 8 ? 8 : 4) * TOKEN_BYTES
}

/** Rows [rowBegin, rowEnd) for records and outputs whose addresses are in scratch. */
export function nibblesMany<C, S>(
  weight: usize, scales: usize, span: i32, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  storeBooks<C>(scratch + TILE_ACCUMULATORS + BOOKS)
  v128.store(scratch, i8x16.splat(15), TILE_ACCUMULATORS + MASK)
  v128.store(scratch, i16x8.splat(1), TILE_ACCUMULATORS + ONES)
  for (let first = 0; first < tokens; ) {
    const count = tileTokens(tokens - first)
    const addresses = scratch + (<usize>first << 2)
    if (ASC_FEATURE_RELAXED_SIMD && count == 8) tile<C, S, u64>(weight, scales, span, cols, rowBegin, rowEnd, 8, addresses, scratch)
    else if (count == 4) tile<C, S, u32>(weight, scales, span, cols, rowBegin, rowEnd, 4, addresses, scratch)
    else if (count == 2) tile<C, S, u16>(weight, scales, span, cols, rowBegin, rowEnd, 2, addresses, scratch)
    else nibblesOne<C, S>(weight, scales, span, cols, rowBegin, rowEnd, addresses, scratch)
    first += count
  }
}

function tile<C, S, N>(
  weight: usize, scales: usize, span: i32, cols: i32, rowBegin: i32, rowEnd: i32, count: usize, addresses: usize, scratch: usize,
): void {
  const rowBytes = unitBytes<C>() * <usize>cols / UNIT
  const rowScales = scaleBytes<S, u16>(span, cols)
  const all = <usize>(rowEnd - rowBegin)
  // The one in the middle of an odd number is taken twice. Rows of IQ4 go one by one.
  const half = isWide<C>() ? all : (all + 1) >> 1
  const next = isWide<C>() ? <usize>0 : all - half
  interleave<N>(cols, count, addresses, scratch + TILE_RECORDS)
  for (let row = <usize>rowBegin, middle = row + half; row < middle; row++) {
    const w = weight + row * rowBytes
    const s = scales + row * rowScales
    memory.fill(scratch + TILE_ACCUMULATORS, 0, count << 5)
    if (!isProduct<S>()) wholeUnits<C, S, N>(w, w + next * rowBytes, s, s + next * rowScales, cols, scratch)
    else if (span == 256) spans<C, S, N, u16>(w, w + next * rowBytes, s, s + next * rowScales, cols, scratch)
    else spans<C, S, N, u8>(w, w + next * rowBytes, s, s + next * rowScales, cols, scratch)
    for (let t: usize = 0; t < count; t++) {
      const out = <usize>load<u32>(addresses + (t << 2), TILE_ADDRESSES)
      const acc = scratch + (t << 5)
      store<f32>(out + (row << 2), sumLanes(v128.load(acc, TILE_ACCUMULATORS)) * lastFactor<S>())
      if (!isWide<C>()) store<f32>(out + ((row + next) << 2), sumLanes(v128.load(acc, TILE_ACCUMULATORS + 16)) * lastFactor<S>())
    }
  }
}

/** Two rows whose scales are products, span by span. */
function spans<C, S, N, L>(w: usize, w2: usize, s: usize, s2: usize, cols: i32, scratch: usize): void {
  let x = scratch + TILE_RECORDS
  const end = x + <usize>(cols >> 7) * tileUnit<N>()
  do {
    sumUnit<C, N>(w, w2, x, scratch, scratch)
    if (sizeof<L>() == 2) sumUnit<C, N>(w + 64, w2 + 64, x + tileUnit<N>(), scratch + UNIT_SUMS, scratch)
    addSpan<C, S, N, L>(s, s2, x, scratch)
    w += 64 * sizeof<L>()
    w2 += 64 * sizeof<L>()
    x += tileUnit<N>() * sizeof<L>()
    s += spanBytes<S, u16>(<i32>(128 * sizeof<L>()))
    s2 += spanBytes<S, u16>(<i32>(128 * sizeof<L>()))
  } while (x < end)
}

/** Two rows whose scales are no products, unit by unit. */
function wholeUnits<C, S, N>(w: usize, w2: usize, s: usize, s2: usize, cols: i32, scratch: usize): void {
  let x = scratch + TILE_RECORDS
  for (const end = x + <usize>(cols >> 7) * tileUnit<N>(); x < end; x += tileUnit<N>()) {
    sumUnit<C, N>(w, w2, x, scratch, scratch)
    addUnit<C, S, N>(s, s2, x, scratch)
    w += 64
    w2 += 64
    s += unitScaleBytes<S>()
    s2 += unitScaleBytes<S>()
  }
  if (cols & 127) {
    const tail = scratch + TILE_ACCUMULATORS + TAILS
    copyTail<S>(w, s, cols & 127, tail)
    copyTail<S>(w2, s2, cols & 127, tail + TAIL_BYTES)
    sumUnit<C, N>(tail, tail + TAIL_BYTES, x, scratch, scratch)
    addUnit<C, S, N>(tail + 64, tail + TAIL_BYTES + 64, x, scratch)
  }
}

// --- integers ------------------------------------------------------------------------------------------------------

/** Sums of a unit for all tokens, SUMS behind TILE_ACCUMULATORS of `sums`. */
// @ts-ignore: decorator
@inline
function sumUnit<C, N>(w: usize, w2: usize, x: usize, sums: usize, scratch: usize): void {
  halfUnit<C, N, u8>(w, w2, x, sums, scratch)
  halfUnit<C, N, u16>(w, w2, x, sums, scratch)
}

// @ts-ignore: decorator
@inline
function halfUnit<C, N, H>(w: usize, w2: usize, x: usize, sums: usize, scratch: usize): void {
  const mask = v128.load(scratch, TILE_ACCUMULATORS + MASK)
  const low = isSigned<C>() ? v128.load(scratch, TILE_ACCUMULATORS + BOOKS) : mask
  const high = isWide<C>() ? v128.load(scratch, TILE_ACCUMULATORS + BOOKS + 16) : low
  const ab = turnWords<H>(v128.load(w), v128.load(w, 16))
  const cd = turnWords<H>(v128.load(w, 32), v128.load(w, 48))
  const ab2 = isWide<C>() ? ab : turnWords<H>(v128.load(w2), v128.load(w2, 16))
  const cd2 = isWide<C>() ? cd : turnWords<H>(v128.load(w2, 32), v128.load(w2, 48))
  // Four bytes of each group, and four more.
  const first = v128.shuffle<i64>(ab, cd, 0, 2)
  const second = v128.shuffle<i64>(ab, cd, 1, 3)
  const first2 = v128.shuffle<i64>(ab2, cd2, 0, 2)
  const second2 = v128.shuffle<i64>(ab2, cd2, 1, 3)
  const p0 = codes<C>(v128.and(first, mask), low)
  const p1 = codes<C>(v128.and(i16x8.shr_u(first, 4), mask), low)
  const p2 = codes<C>(v128.and(second, mask), low)
  const p3 = codes<C>(v128.and(i16x8.shr_u(second, 4), mask), low)
  const q0 = codes<C>(v128.and(first2, mask), high)
  const q1 = codes<C>(v128.and(i16x8.shr_u(first2, 4), mask), high)
  const q2 = codes<C>(v128.and(second2, mask), high)
  const q3 = codes<C>(v128.and(i16x8.shr_u(second2, 4), mask), high)
  sumToken<H>(p0, p1, p2, p3, q0, q1, q2, q3, x, sums)
  sumToken<H>(p0, p1, p2, p3, q0, q1, q2, q3, x + TOKEN_BYTES, sums + 32)
  if (sizeof<N>() > 2) {
    sumToken<H>(p0, p1, p2, p3, q0, q1, q2, q3, x + 2 * TOKEN_BYTES, sums + 64)
    sumToken<H>(p0, p1, p2, p3, q0, q1, q2, q3, x + 3 * TOKEN_BYTES, sums + 96)
  }
  if (sizeof<N>() == 8) {
    sumToken<H>(p0, p1, p2, p3, q0, q1, q2, q3, x + 4 * TOKEN_BYTES, sums + 128)
    sumToken<H>(p0, p1, p2, p3, q0, q1, q2, q3, x + 5 * TOKEN_BYTES, sums + 160)
    sumToken<H>(p0, p1, p2, p3, q0, q1, q2, q3, x + 6 * TOKEN_BYTES, sums + 192)
    sumToken<H>(p0, p1, p2, p3, q0, q1, q2, q3, x + 7 * TOKEN_BYTES, sums + 224)
  }
}

/** Sums of the first half, or of the second and those of the first. */
// @ts-ignore: decorator
@inline
function sumToken<H>(
  p0: v128, p1: v128, p2: v128, p3: v128, q0: v128, q1: v128, q2: v128, q3: v128, x: usize, scratch: usize,
): void {
  const x0 = v128.load(x, (sizeof<H>() - 1) * 64)
  const x1 = v128.load(x, (sizeof<H>() - 1) * 64 + 16)
  const x2 = v128.load(x, (sizeof<H>() - 1) * 64 + 32)
  const x3 = v128.load(x, (sizeof<H>() - 1) * 64 + 48)
  if (DOT_PRODUCTS) {
    const before = sizeof<H>() == 2 ? v128.load(scratch, TILE_ACCUMULATORS + SUMS) : i32x4.splat(0)
    const before2 = sizeof<H>() == 2 ? v128.load(scratch, TILE_ACCUMULATORS + SUMS + 16) : before
    v128.store(scratch, dotFour(x0, x1, x2, x3, p0, p1, p2, p3, before), TILE_ACCUMULATORS + SUMS)
    v128.store(scratch, dotFour(x0, x1, x2, x3, q0, q1, q2, q3, before2), TILE_ACCUMULATORS + SUMS + 16)
    return
  }
  let p = i16x8.add(i16x8.add(i16x8.add(pairs(x0, p0), pairs(x1, p1)), pairs(x2, p2)), pairs(x3, p3))
  let q = i16x8.add(i16x8.add(i16x8.add(pairs(x0, q0), pairs(x1, q1)), pairs(x2, q2)), pairs(x3, q3))
  if (sizeof<H>() == 2) {
    p = i16x8.add(p, v128.load(scratch, TILE_ACCUMULATORS + SUMS))
    q = i16x8.add(q, v128.load(scratch, TILE_ACCUMULATORS + SUMS + 16))
  }
  v128.store(scratch, p, TILE_ACCUMULATORS + SUMS)
  v128.store(scratch, q, TILE_ACCUMULATORS + SUMS + 16)
}

// --- floats --------------------------------------------------------------------------------------------------------

/** Adds a span's sums and minima to the accumulators of all tokens: of one row, and of the other where it is not a plane of the first. */
// @ts-ignore: decorator
@inline
function addSpan<C, S, N, L>(s: usize, s2: usize, x: usize, scratch: usize): void {
  const factors = spanFactors(s, s2)
  addSpanRow<C, S, N, L>(s, v128.shuffle<i32>(factors, factors, 0, 0, 0, 0), factorOfMinima<S>(factors, false), x, scratch)
  if (isWide<C>()) return
  addSpanRow<C, S, N, L>(s2, v128.shuffle<i32>(factors, factors, 2, 2, 2, 2), factorOfMinima<S>(factors, true), x, scratch + 16)
}

// @ts-ignore: decorator
@inline
function addSpanRow<C, S, N, L>(s: usize, factor: v128, minimaFactor: v128, x: usize, scratch: usize): void {
  const groups: usize = 4 * sizeof<L>()
  const scale = spanScales(s + headerBytes<S>())
  const scale2 = sizeof<L>() == 2 ? spanScales(s + headerBytes<S>() + 4) : scale
  const minima = fourMinima<S>(s, groups, 0)
  const minima2 = sizeof<L>() == 2 ? fourMinima<S>(s, groups, 4) : minima
  spanToken<C, N, L>(scale, scale2, minima, minima2, factor, minimaFactor, x, scratch)
  spanToken<C, N, L>(scale, scale2, minima, minima2, factor, minimaFactor, x + TOKEN_BYTES, scratch + 32)
  if (sizeof<N>() > 2) {
    spanToken<C, N, L>(scale, scale2, minima, minima2, factor, minimaFactor, x + 2 * TOKEN_BYTES, scratch + 64)
    spanToken<C, N, L>(scale, scale2, minima, minima2, factor, minimaFactor, x + 3 * TOKEN_BYTES, scratch + 96)
  }
  if (sizeof<N>() == 8) {
    spanToken<C, N, L>(scale, scale2, minima, minima2, factor, minimaFactor, x + 4 * TOKEN_BYTES, scratch + 128)
    spanToken<C, N, L>(scale, scale2, minima, minima2, factor, minimaFactor, x + 5 * TOKEN_BYTES, scratch + 160)
    spanToken<C, N, L>(scale, scale2, minima, minima2, factor, minimaFactor, x + 6 * TOKEN_BYTES, scratch + 192)
    spanToken<C, N, L>(scale, scale2, minima, minima2, factor, minimaFactor, x + 7 * TOKEN_BYTES, scratch + 224)
  }
}

// @ts-ignore: decorator
@inline
function spanToken<C, N, L>(
  scale: v128, scale2: v128, minima: v128, minima2: v128, factor: v128, minimaFactor: v128, x: usize, scratch: usize,
): void {
  let sum = f32x4.mul(scaledSums<C>(scale, scratch), v128.load(x, 128))
  let least = f32x4.mul(minima, v128.load(x, 144))
  if (sizeof<L>() == 2) {
    sum = madd(scaledSums<C>(scale2, scratch + UNIT_SUMS), v128.load(x + tileUnit<N>(), 128), sum)
    least = madd(minima2, v128.load(x + tileUnit<N>(), 144), least)
  }
  const acc = madd(sum, factor, v128.load(scratch, TILE_ACCUMULATORS))
  v128.store(scratch, madd(least, minimaFactor, acc), TILE_ACCUMULATORS)
}

/** Adds a unit's sums to the accumulators of all tokens. */
// @ts-ignore: decorator
@inline
function addUnit<C, S, N>(s: usize, s2: usize, x: usize, scratch: usize): void {
  const scale = fourScales<S>(s)
  const scale2 = isWide<C>() ? scale : fourScales<S>(s2)
  const ones = isWide<C>() ? v128.load(scratch, TILE_ACCUMULATORS + ONES) : scale
  unitToken<C>(scale, scale2, ones, x, scratch)
  unitToken<C>(scale, scale2, ones, x + TOKEN_BYTES, scratch + 32)
  if (sizeof<N>() > 2) {
    unitToken<C>(scale, scale2, ones, x + 2 * TOKEN_BYTES, scratch + 64)
    unitToken<C>(scale, scale2, ones, x + 3 * TOKEN_BYTES, scratch + 96)
  }
  if (sizeof<N>() == 8) {
    unitToken<C>(scale, scale2, ones, x + 4 * TOKEN_BYTES, scratch + 128)
    unitToken<C>(scale, scale2, ones, x + 5 * TOKEN_BYTES, scratch + 160)
    unitToken<C>(scale, scale2, ones, x + 6 * TOKEN_BYTES, scratch + 192)
    unitToken<C>(scale, scale2, ones, x + 7 * TOKEN_BYTES, scratch + 224)
  }
}

// @ts-ignore: decorator
@inline
function unitToken<C>(scale: v128, scale2: v128, ones: v128, x: usize, scratch: usize): void {
  const acc = v128.load(scratch, TILE_ACCUMULATORS)
  const xScale = v128.load(x, 128)
  const shifts = v128.load(x, 144)
  if (isWide<C>()) {
    const sums = f32x4.convert_i32x4_s(DOT_PRODUCTS ? words<C>(scratch) : integers<C>(ones, scratch))
    const sum = madd(sums, f32x4.mul(scale, xScale), acc)
    v128.store(scratch, madd(scale, shifts, sum), TILE_ACCUMULATORS)
    return
  }
  const acc2 = v128.load(scratch, TILE_ACCUMULATORS + 16)
  const p = shiftedSums(v128.load(scratch, TILE_ACCUMULATORS + SUMS), shifts)
  const q = shiftedSums(v128.load(scratch, TILE_ACCUMULATORS + SUMS + 16), shifts)
  v128.store(scratch, madd(f32x4.convert_i32x4_s(p), f32x4.mul(scale, xScale), acc), TILE_ACCUMULATORS)
  v128.store(scratch, madd(f32x4.convert_i32x4_s(q), f32x4.mul(scale2, xScale), acc2), TILE_ACCUMULATORS + 16)
}

/** A group's integer scale in two lanes of 16 bits; with dot products as a float, since their sums are words. */
// @ts-ignore: decorator
@inline
function spanScales(s: usize): v128 {
  const doubled = doubledScales(s)
  return DOT_PRODUCTS ? f32x4.convert_i32x4_s(i32x4.shr_s(doubled, 16)) : doubled
}

/** Four groups' sums times their integers: exact, or rounded once, either way. */
// @ts-ignore: decorator
@inline
function scaledSums<C>(scale: v128, scratch: usize): v128 {
  if (DOT_PRODUCTS) return f32x4.mul(f32x4.convert_i32x4_s(words<C>(scratch)), scale)
  return f32x4.convert_i32x4_s(integers<C>(scale, scratch))
}

/** Four groups' sums of codes that are shifted, with what takes the shift back. */
// @ts-ignore: decorator
@inline
function shiftedSums(sums: v128, shifts: v128): v128 {
  if (DOT_PRODUCTS) return i32x4.add(sums, i32x4.extadd_pairwise_i16x8_s(shifts))
  return i32x4.extadd_pairwise_i16x8_s(i16x8.add(sums, shifts))
}

/** Four groups' sums, which dot products left as words. */
// @ts-ignore: decorator
@inline
function words<C>(scratch: usize): v128 {
  const sums = v128.load(scratch, TILE_ACCUMULATORS + SUMS)
  return isWide<C>() ? i32x4.add(sums, i32x4.shl(v128.load(scratch, TILE_ACCUMULATORS + SUMS + 16), 4)) : sums
}

/** Four groups' sums times integers that are in two lanes each. */
// @ts-ignore: decorator
@inline
function integers<C>(scale: v128, scratch: usize): v128 {
  const sums = i32x4.dot_i16x8_s(v128.load(scratch, TILE_ACCUMULATORS + SUMS), scale)
  if (!isWide<C>()) return sums
  return i32x4.add(sums, i32x4.dot_i16x8_s(v128.load(scratch, TILE_ACCUMULATORS + SUMS + 16), i16x8.shl(scale, 4)))
}

/** Records, whose addresses are given, unit by unit beside each other, turned as codes are. */
function interleave<N>(cols: i32, tokens: usize, addresses: usize, tile: usize): void {
  for (let t: usize = 0; t < tokens; t++) {
    let from = <usize>load<u32>(addresses + (t << 2))
    let to = tile + t * TOKEN_BYTES
    for (const end = tile + <usize>((cols + 127) >> 7) * tileUnit<N>(); to < end; to += tileUnit<N>()) {
      // Those that meet low nibbles, and those that meet high ones.
      turnGroups<u16>(from, to)
      turnGroups<u16>(from + 16, to + 16)
      v128.store(to, v128.load(from, 128), 128)
      v128.store(to, v128.load(from, 144), 144)
      from += recordUnit(32)
    }
  }
}
