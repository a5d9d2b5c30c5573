// Six-bit codes in groups of 16, a byte each (Q6_K), × int8 activations. A group's sixteen products are added up in two lanes of
// 16 bits. Codes are stored 32 too large, so that sums may wrap around; the records have what takes that back, lane by lane
// (prepareInput.as.ts). Four groups' sums are multiplied by the integers of their scales while they are integers, then by the
// activations' scales. Those of a span are added up, ascending, multiplied by its half, and added to four float lanes. That is
// the order of every output, whatever the number of tokens.
//
// One token: a row at a time. More: two rows meet up to eight records at a time, codes and activations turned as in
// matmulNibblesMany.as.ts, so that a vector has four bytes of each of four groups, and every token ends with a store.
import { recordUnit, scaleBytes, spanBytes, splatHalf } from './blocks.as'
import { TILE_ACCUMULATORS, TILE_ADDRESSES, TILE_RECORDS, tileTokens } from './layout.as'
import { doubledScales, halves, pairs, quarters, spanFactors, turnGroups, turnWords } from './nibbleSums.as'
import { madd, sumLanes } from '../assembly/simd.as'

// In scratch behind TILE_ACCUMULATORS: [8 tokens, 2 rows] accumulators, [8 tokens, 2 rows] sums of a span. Then the records,
// unit by unit and token by token.
//
// Type parameters. N, the tokens: u16 is 2, u32 is 4, u64 is 8. L: units of a span, u8 one, u16 two. H: the first (u8) or second
// (u16) half of a unit, which is four groups. P: the first (u8), another (u16) or the last (u32) four groups of a span.
// @ts-ignore: decorator
@inline
const SPAN_SUMS: usize = 256
// @ts-ignore: decorator
@inline
const HEADER: usize = 2
// @ts-ignore: decorator
@inline
const TOKEN_BYTES: usize = 192
// In a unit of a record.
// @ts-ignore: decorator
@inline
const SCALES: usize = 128
// @ts-ignore: decorator
@inline
const SHIFTS: usize = 160

/** Rows [rowBegin, rowEnd) for records and outputs whose addresses are in scratch. */
export function bytesMany(
  weight: usize, scales: usize, span: i32, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  for (let first = 0; first < tokens; ) {
    const count = tileTokens(tokens - first)
    const addresses = scratch + (<usize>first << 2)
    if (ASC_FEATURE_RELAXED_SIMD && count == 8) tile<u64>(weight, scales, span, cols, rowBegin, rowEnd, 8, addresses, scratch)
    else if (count == 4) tile<u32>(weight, scales, span, cols, rowBegin, rowEnd, 4, addresses, scratch)
    else if (count == 2) tile<u16>(weight, scales, span, cols, rowBegin, rowEnd, 2, addresses, scratch)
    else rowsOne(weight, scales, span, cols, rowBegin, rowEnd, addresses, scratch)
    first += count
  }
}

// --- one token -------------------------------------------------------------------------------------------------------

function rowsOne(
  weight: usize, scales: usize, span: i32, cols: i32, rowBegin: i32, rowEnd: i32, addresses: usize, scratch: usize,
): void {
  const rowScales = scaleBytes<i8, u8>(span, cols)
  const record = <usize>load<u32>(addresses)
  const out = <usize>load<u32>(addresses, TILE_ADDRESSES)
  for (let row = <usize>rowBegin; row < <usize>rowEnd; row++) {
    const w = weight + row * <usize>cols
    const s = scales + row * rowScales
    const sum = span == 256 ? rowOne<u16>(w, s, cols, record, scratch) : rowOne<u8>(w, s, cols, record, scratch)
    store<f32>(out + (row << 2), sum)
  }
}

function rowOne<L>(w: usize, s: usize, cols: i32, x: usize, scratch: usize): f32 {
  let acc = f32x4.splat(0)
  const end = w + <usize>cols
  do {
    let sum = f32x4.mul(floatsOne<u8>(w, s + HEADER, x), v128.load(x, SCALES))
    v128.store(scratch, sum, TILE_ACCUMULATORS) // read by nobody: keeps the loads of the next half after this one
    sum = madd(floatsOne<u16>(w, s + HEADER + 4, x), v128.load(x, SCALES + 16), sum)
    x += recordUnit(16)
    if (sizeof<L>() == 2) {
      v128.store(scratch, sum, TILE_ACCUMULATORS)
      sum = madd(floatsOne<u8>(w + 128, s + HEADER + 8, x), v128.load(x, SCALES), sum)
      v128.store(scratch, sum, TILE_ACCUMULATORS)
      sum = madd(floatsOne<u16>(w + 128, s + HEADER + 12, x), v128.load(x, SCALES + 16), sum)
      x += recordUnit(16)
    }
    acc = madd(sum, splatHalf(s), acc)
    w += 128 * sizeof<L>()
    s += spanBytes<i8, u8>(<i32>(128 * sizeof<L>()))
  } while (w < end)
  return sumLanes(acc)
}

/** Four groups' sums times the integers of their scales. */
// @ts-ignore: decorator
@inline
function floatsOne<H>(w: usize, s: usize, x: usize): v128 {
  const ab = halves(products<H, u8>(w, x), products<H, u16>(w, x))
  const cd = halves(products<H, u32>(w, x), products<H, u64>(w, x))
  const sums = i16x8.add(quarters(ab, cd), v128.load(x, SHIFTS + (sizeof<H>() - 1) * 16))
  return f32x4.convert_i32x4_s(i32x4.dot_i16x8_s(sums, doubledScales(s)))
}

/** Sums of neighbours' products in group I (u8, u16, u32, u64: 0 to 3) of a half. */
// @ts-ignore: decorator
@inline
function products<H, I>(w: usize, x: usize): v128 {
  const x0 = v128.load(x, (sizeof<H>() - 1) * 64 + (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 16)
  return pairs(x0, v128.load(w, (sizeof<H>() - 1) * 64 + (sizeof<I>() == 8 ? 3 : sizeof<I>() >> 1) * 16))
}

// --- several tokens --------------------------------------------------------------------------------------------------

/** Bytes of a unit of a tile. */
// @ts-ignore: decorator
@inline
function tileUnit<N>(): usize {
  return sizeof<N>() * TOKEN_BYTES
}

function tile<N>(
  weight: usize, scales: usize, span: i32, cols: i32, rowBegin: i32, rowEnd: i32, count: usize, addresses: usize, scratch: usize,
): void {
  const rowScales = scaleBytes<i8, u8>(span, cols)
  // The one in the middle of an odd number is taken twice.
  const half = (<usize>(rowEnd - rowBegin) + 1) >> 1
  const next = <usize>(rowEnd - rowBegin) - half
  interleave<N>(cols, count, addresses, scratch + TILE_RECORDS)
  for (let row = <usize>rowBegin, middle = row + half; row < middle; row++) {
    const w = weight + row * <usize>cols
    const s = scales + row * rowScales
    memory.fill(scratch + TILE_ACCUMULATORS, 0, count << 5)
    if (span == 256) spans<N, u16>(w, w + next * <usize>cols, s, s + next * rowScales, cols, scratch)
    else spans<N, u8>(w, w + next * <usize>cols, s, s + next * rowScales, cols, scratch)
    for (let t: usize = 0; t < count; t++) {
      const out = <usize>load<u32>(addresses + (t << 2), TILE_ADDRESSES)
      const acc = scratch + (t << 5)
      store<f32>(out + (row << 2), sumLanes(v128.load(acc, TILE_ACCUMULATORS)))
      store<f32>(out + ((row + next) << 2), sumLanes(v128.load(acc, TILE_ACCUMULATORS + 16)))
    }
  }
}

function spans<N, L>(w: usize, w2: usize, s: usize, s2: usize, cols: i32, scratch: usize): void {
  let x = scratch + TILE_RECORDS
  const end = w + <usize>cols
  do {
    halfUnit<N, u8>(w, w2, s + HEADER, s2 + HEADER, s, s2, x, x + SCALES, scratch)
    if (sizeof<L>() == 2) {
      halfUnit<N, u16>(w + 64, w2 + 64, s + HEADER + 4, s2 + HEADER + 4, s, s2, x + 64, x + SCALES + 16, scratch)
      x += tileUnit<N>()
      halfUnit<N, u16>(w + 128, w2 + 128, s + HEADER + 8, s2 + HEADER + 8, s, s2, x, x + SCALES, scratch)
    }
    const last = 128 * sizeof<L>() - 64
    const groups = HEADER + 8 * sizeof<L>() - 4
    halfUnit<N, u32>(w + last, w2 + last, s + groups, s2 + groups, s, s2, x + 64, x + SCALES + 16, scratch)
    x += tileUnit<N>()
    w += 128 * sizeof<L>()
    w2 += 128 * sizeof<L>()
    s += spanBytes<i8, u8>(<i32>(128 * sizeof<L>()))
    s2 += spanBytes<i8, u8>(<i32>(128 * sizeof<L>()))
  } while (w < end)
}

/**
 * Four groups of two rows: codes at w and w2, the integers of their scales at s and s2, their spans' at `span` and `span2`;
 * of activations at x, their scales at xScales. No part of the loop, so that all layouts share it.
 */
function halfUnit<N, P>(
  w: usize, w2: usize, s: usize, s2: usize, span: usize, span2: usize, x: usize, xScales: usize, scratch: usize,
): void {
  const ab = turnWords<u8>(v128.load(w), v128.load(w, 16))
  const cd = turnWords<u8>(v128.load(w, 32), v128.load(w, 48))
  const ef = turnWords<u16>(v128.load(w), v128.load(w, 16))
  const gh = turnWords<u16>(v128.load(w, 32), v128.load(w, 48))
  const ab2 = turnWords<u8>(v128.load(w2), v128.load(w2, 16))
  const cd2 = turnWords<u8>(v128.load(w2, 32), v128.load(w2, 48))
  const ef2 = turnWords<u16>(v128.load(w2), v128.load(w2, 16))
  const gh2 = turnWords<u16>(v128.load(w2, 32), v128.load(w2, 48))
  const p0 = v128.shuffle<i64>(ab, cd, 0, 2)
  const p1 = v128.shuffle<i64>(ab, cd, 1, 3)
  const p2 = v128.shuffle<i64>(ef, gh, 0, 2)
  const p3 = v128.shuffle<i64>(ef, gh, 1, 3)
  const q0 = v128.shuffle<i64>(ab2, cd2, 0, 2)
  const q1 = v128.shuffle<i64>(ab2, cd2, 1, 3)
  const q2 = v128.shuffle<i64>(ef2, gh2, 0, 2)
  const q3 = v128.shuffle<i64>(ef2, gh2, 1, 3)
  const scale = doubledScales(s)
  const scale2 = doubledScales(s2)
  const factors = sizeof<P>() == 4 ? spanFactors(span, span2) : scale
  const factor = sizeof<P>() == 4 ? v128.shuffle<i32>(factors, factors, 0, 0, 0, 0) : scale
  const factor2 = sizeof<P>() == 4 ? v128.shuffle<i32>(factors, factors, 2, 2, 2, 2) : scale
  token<P>(p0, p1, p2, p3, q0, q1, q2, q3, scale, scale2, factor, factor2, x, xScales, scratch)
  token<P>(p0, p1, p2, p3, q0, q1, q2, q3, scale, scale2, factor, factor2, x + TOKEN_BYTES, xScales + TOKEN_BYTES, scratch + 32)
  if (sizeof<N>() > 2) {
    token<P>(p0, p1, p2, p3, q0, q1, q2, q3, scale, scale2, factor, factor2, x + 2 * TOKEN_BYTES, xScales + 2 * TOKEN_BYTES, scratch + 64)
    token<P>(p0, p1, p2, p3, q0, q1, q2, q3, scale, scale2, factor, factor2, x + 3 * TOKEN_BYTES, xScales + 3 * TOKEN_BYTES, scratch + 96)
  }
  if (sizeof<N>() == 8) {
    token<P>(p0, p1, p2, p3, q0, q1, q2, q3, scale, scale2, factor, factor2, x + 4 * TOKEN_BYTES, xScales + 4 * TOKEN_BYTES, scratch + 128)
    token<P>(p0, p1, p2, p3, q0, q1, q2, q3, scale, scale2, factor, factor2, x + 5 * TOKEN_BYTES, xScales + 5 * TOKEN_BYTES, scratch + 160)
    token<P>(p0, p1, p2, p3, q0, q1, q2, q3, scale, scale2, factor, factor2, x + 6 * TOKEN_BYTES, xScales + 6 * TOKEN_BYTES, scratch + 192)
    token<P>(p0, p1, p2, p3, q0, q1, q2, q3, scale, scale2, factor, factor2, x + 7 * TOKEN_BYTES, xScales + 7 * TOKEN_BYTES, scratch + 224)
  }
}

// @ts-ignore: decorator
@inline
function token<P>(
  p0: v128, p1: v128, p2: v128, p3: v128, q0: v128, q1: v128, q2: v128, q3: v128,
  scale: v128, scale2: v128, factor: v128, factor2: v128, x: usize, xScales: usize, scratch: usize,
): void {
  const x0 = v128.load(x)
  const x1 = v128.load(x, 16)
  const x2 = v128.load(x, 32)
  const x3 = v128.load(x, 48)
  const shifts = v128.load(xScales, SHIFTS - SCALES)
  const p = i16x8.add(i16x8.add(i16x8.add(pairs(x0, p0), pairs(x1, p1)), i16x8.add(pairs(x2, p2), pairs(x3, p3))), shifts)
  const q = i16x8.add(i16x8.add(i16x8.add(pairs(x0, q0), pairs(x1, q1)), i16x8.add(pairs(x2, q2), pairs(x3, q3))), shifts)
  const xScale = v128.load(xScales)
  addSums<P>(i32x4.dot_i16x8_s(p, scale), xScale, factor, scratch)
  addSums<P>(i32x4.dot_i16x8_s(q, scale2), xScale, factor2, scratch + 16)
}

// @ts-ignore: decorator
@inline
function addSums<P>(sums: v128, xScale: v128, factor: v128, scratch: usize): void {
  const floats = f32x4.convert_i32x4_s(sums)
  if (sizeof<P>() == 1) {
    v128.store(scratch, f32x4.mul(floats, xScale), TILE_ACCUMULATORS + SPAN_SUMS)
    return
  }
  const sum = madd(floats, xScale, v128.load(scratch, TILE_ACCUMULATORS + SPAN_SUMS))
  if (sizeof<P>() == 2) v128.store(scratch, sum, TILE_ACCUMULATORS + SPAN_SUMS)
  else v128.store(scratch, madd(sum, factor, v128.load(scratch, TILE_ACCUMULATORS)), TILE_ACCUMULATORS)
}

/** Records, whose addresses are given, unit by unit beside each other, turned as codes are. */
function interleave<N>(cols: i32, tokens: usize, addresses: usize, tile: usize): void {
  for (let t: usize = 0; t < tokens; t++) {
    let from = <usize>load<u32>(addresses + (t << 2))
    let to = tile + t * TOKEN_BYTES
    for (const end = tile + <usize>(cols >> 7) * tileUnit<N>(); to < end; to += tileUnit<N>()) {
      turnGroups<u8>(from, to)
      turnGroups<u8>(from + 64, to + 64)
      for (let i = SCALES; i < TOKEN_BYTES; i += 16) v128.store(to + i, v128.load(from + i))
      from += recordUnit(16)
    }
  }
}
