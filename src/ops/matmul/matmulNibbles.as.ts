// One token's products with four-bit codes in groups of 32 (nibbleSums.as.ts): two rows at once, which share the loads of
// activations. They are far from each other, as in matmulPaired.as.ts.
//
// Written for V8's optimizing compiler, as matmulPaired.as.ts is: what ends a part of a unit is stored, so that the next part's loads
// come after it. Accumulators are in scratch for that reason.
import { recordUnit, scaleBytes, spanBytes, UNIT, unitBytes } from './blocks.as'
import { kept } from '../assembly/simd.as'
import { TILE_ACCUMULATORS, TILE_ADDRESSES } from './layout.as'
import {
  codes, copyTail, doubledScales, factorOfMinima, fourMinima, fourScales, halves, headerBytes, isProduct, isWide, lastFactor, pairs, quarters, spanFactors,
  storeBooks, TAIL_BYTES, unitScaleBytes,
} from './nibbleSums.as'
import { madd, sumLanes } from '../assembly/simd.as'

// In scratch behind TILE_ACCUMULATORS: accumulators of two rows, what parts of a unit leave, books of codes, then two tails.
// @ts-ignore: decorator
@inline
const PARTS: usize = 32
// @ts-ignore: decorator
@inline
const BOOKS: usize = 64
// @ts-ignore: decorator
@inline
const TAILS: usize = 96

/** Rows [rowBegin, rowEnd) for the record and the output at `addresses`. */
export function nibblesOne<C, S>(
  weight: usize, scales: usize, span: i32, cols: i32, rowBegin: i32, rowEnd: i32, addresses: usize, scratch: usize,
): void {
  const rowBytes = unitBytes<C>() * <usize>cols / UNIT
  const rowScales = scaleBytes<S, u16>(span, cols)
  const first = <usize>rowBegin
  // The one in the middle of an odd number is taken twice.
  const half = (<usize>(rowEnd - rowBegin) + 1) >> 1
  const next = <usize>(rowEnd - rowBegin) - half
  const record = <usize>load<u32>(addresses)
  const out = <usize>load<u32>(addresses, TILE_ADDRESSES)
  storeBooks<C>(scratch + TILE_ACCUMULATORS + BOOKS)
  for (let row = first, middle = first + half; row < middle; row++) {
    const w = weight + row * rowBytes
    const s = scales + row * rowScales
    const nextRow = next * rowBytes
    const nextScale = next * rowScales
    v128.store(scratch, f32x4.splat(0), TILE_ACCUMULATORS)
    v128.store(scratch, f32x4.splat(0), TILE_ACCUMULATORS + 16)
    if (!isProduct<S>()) wholeUnits<C, S>(w, w + nextRow, s, s + nextScale, cols, record, scratch)
    else if (span == 256) spans<C, S, u16>(w, w + nextRow, s, s + nextScale, cols, record, scratch)
    else spans<C, S, u8>(w, w + nextRow, s, s + nextScale, cols, record, scratch)
    store<f32>(out + (row << 2), sumLanes(v128.load(scratch, TILE_ACCUMULATORS)) * lastFactor<S>())
    store<f32>(out + ((row + next) << 2), sumLanes(v128.load(scratch, TILE_ACCUMULATORS + 16)) * lastFactor<S>())
  }
}

/** Two rows whose scales are products; L: u8 and u16 for spans of one unit and of two. */
function spans<C, S, L>(w: usize, w2: usize, s: usize, s2: usize, cols: i32, record: usize, scratch: usize): void {
  const mask = kept(i8x16.splat(15))
  const low = isSigned<C>() ? v128.load(scratch, TILE_ACCUMULATORS + BOOKS) : mask
  const high = isWide<C>() ? v128.load(scratch, TILE_ACCUMULATORS + BOOKS + 16) : mask
  const groups: usize = 4 * sizeof<L>()
  let x = record
  const end = x + <usize>(cols >> 7) * recordUnit(32)
  let acc = f32x4.splat(0)
  let acc2 = f32x4.splat(0)
  do {
    addUnit<C, S, u8>(w, w2, s, s2, x, mask, low, high, scratch)
    if (sizeof<L>() == 2) addUnit<C, S, u16>(w, w2, s, s2, x, mask, low, high, scratch)
    const factors = spanFactors(s, s2)
    let minima = f32x4.mul(fourMinima<S>(s, groups, 0), v128.load(x, 144))
    let minima2 = f32x4.mul(fourMinima<S>(s2, groups, 0), v128.load(x, 144))
    if (sizeof<L>() == 2) {
      minima = madd(fourMinima<S>(s, groups, 4), v128.load(x, 304), minima)
      minima2 = madd(fourMinima<S>(s2, groups, 4), v128.load(x, 304), minima2)
    }
    acc = madd(v128.load(scratch, TILE_ACCUMULATORS), v128.shuffle<i32>(factors, factors, 0, 0, 0, 0), acc)
    acc2 = madd(v128.load(scratch, TILE_ACCUMULATORS + 16), v128.shuffle<i32>(factors, factors, 2, 2, 2, 2), acc2)
    acc = madd(minima, factorOfMinima<S>(factors, false), acc)
    acc2 = madd(minima2, factorOfMinima<S>(factors, true), acc2)
    w += unitBytes<C>() * sizeof<L>()
    w2 += unitBytes<C>() * sizeof<L>()
    x += recordUnit(32) * sizeof<L>()
    s += spanBytes<S, u16>(<i32>(128 * sizeof<L>()))
    s2 += spanBytes<S, u16>(<i32>(128 * sizeof<L>()))
  } while (x < end)
  v128.store(scratch, acc, TILE_ACCUMULATORS)
  v128.store(scratch, acc2, TILE_ACCUMULATORS + 16)
}

/** Two rows whose scales are no products. */
function wholeUnits<C, S>(w: usize, w2: usize, s: usize, s2: usize, cols: i32, record: usize, scratch: usize): void {
  const mask = kept(i8x16.splat(15))
  const low = v128.load(scratch, TILE_ACCUMULATORS + BOOKS)
  const high = isWide<C>() ? v128.load(scratch, TILE_ACCUMULATORS + BOOKS + 16) : mask
  let x = record
  const end = x + <usize>(cols >> 7) * recordUnit(32)
  const pairsEnd = end - recordUnit(32)
  if (x < pairsEnd) {
    do {
      addUnit<C, S, u8>(w, w2, s, s2, x, mask, low, high, scratch)
      addUnit<C, S, u16>(w, w2, s, s2, x, mask, low, high, scratch)
      w += unitBytes<C>() * 2
      w2 += unitBytes<C>() * 2
      s += unitScaleBytes<S>() * 2
      s2 += unitScaleBytes<S>() * 2
      x += recordUnit(32) * 2
    } while (x < pairsEnd)
  }
  if (x < end) {
    addUnit<C, S, u8>(w, w2, s, s2, x, mask, low, high, scratch)
    w += unitBytes<C>()
    w2 += unitBytes<C>()
    s += unitScaleBytes<S>()
    s2 += unitScaleBytes<S>()
    x += recordUnit(32)
  }
  if (cols & 127) {
    const tail = scratch + TILE_ACCUMULATORS + TAILS
    copyTail<S>(w, s, cols & 127, tail)
    copyTail<S>(w2, s2, cols & 127, tail + TAIL_BYTES)
    addUnit<C, S, u8>(
      tail, tail + TAIL_BYTES, tail + 64, tail + TAIL_BYTES + 64, x, mask, low, high, scratch,
    )
  }
}

/**
 * Adds the first (U = u8) or second (u16) unit at w and w2. Where scales are products, s and s2 are the spans, and the first
 * unit begins anew.
 */
// @ts-ignore: decorator
@inline
function addUnit<C, S, U>(
  w: usize, w2: usize, s: usize, s2: usize, x: usize, mask: v128, low: v128, high: v128, scratch: usize,
): void {
  w += (sizeof<U>() - 1) * 64
  w2 += (sizeof<U>() - 1) * 64
  x += (sizeof<U>() - 1) * 160
  s += isProduct<S>() ? headerBytes<S>() + (sizeof<U>() - 1) * 4 : (sizeof<U>() - 1) * unitScaleBytes<S>()
  s2 += isProduct<S>() ? headerBytes<S>() + (sizeof<U>() - 1) * 4 : (sizeof<U>() - 1) * unitScaleBytes<S>()
  if (isWide<C>()) {
    addWide<S, U>(w, s, x, mask, low, high, scratch)
    addWide<S, U>(w2, s2, x, mask, low, high, scratch + 16)
    return
  }
  const a0 = v128.load(x)
  const a1 = v128.load(x, 16)
  const b0 = v128.load(x, 32)
  const b1 = v128.load(x, 48)
  const ab = halves(oneGroup<C>(v128.load(w), a0, a1, mask, low), oneGroup<C>(v128.load(w, 16), b0, b1, mask, low))
  const ab2 = halves(oneGroup<C>(v128.load(w2), a0, a1, mask, low), oneGroup<C>(v128.load(w2, 16), b0, b1, mask, low))
  v128.store(scratch, ab, TILE_ACCUMULATORS + PARTS)
  v128.store(scratch, ab2, TILE_ACCUMULATORS + PARTS)
  const c0 = v128.load(x, 64)
  const c1 = v128.load(x, 80)
  const d0 = v128.load(x, 96)
  const d1 = v128.load(x, 112)
  const cd = halves(oneGroup<C>(v128.load(w, 32), c0, c1, mask, low), oneGroup<C>(v128.load(w, 48), d0, d1, mask, low))
  const cd2 = halves(oneGroup<C>(v128.load(w2, 32), c0, c1, mask, low), oneGroup<C>(v128.load(w2, 48), d0, d1, mask, low))
  const sums = quarters(ab, cd)
  const sums2 = quarters(ab2, cd2)
  v128.store(scratch, sums, TILE_ACCUMULATORS + PARTS)
  v128.store(scratch, sums2, TILE_ACCUMULATORS + PARTS)
  const xScale = v128.load(x, 128)
  if (isProduct<S>()) {
    // Codes below 16: sixteen products fit 16 bits.
    addSums<S, U>(i32x4.dot_i16x8_s(sums, doubledScales(s)), xScale, scratch)
    addSums<S, U>(i32x4.dot_i16x8_s(sums2, doubledScales(s2)), xScale, scratch + 16)
  } else {
    const shifts = v128.load(x, 144)
    addSums<S, U>(i32x4.extadd_pairwise_i16x8_s(i16x8.add(sums, shifts)), f32x4.mul(fourScales<S>(s), xScale), scratch)
    addSums<S, U>(i32x4.extadd_pairwise_i16x8_s(i16x8.add(sums2, shifts)), f32x4.mul(fourScales<S>(s2), xScale), scratch + 16)
  }
}

// @ts-ignore: decorator
@inline
function addSums<S, U>(sums: v128, scale: v128, scratch: usize): void {
  const floats = f32x4.convert_i32x4_s(sums)
  if (isProduct<S>() && sizeof<U>() == 1) v128.store(scratch, f32x4.mul(floats, scale), TILE_ACCUMULATORS)
  else v128.store(scratch, madd(floats, scale, v128.load(scratch, TILE_ACCUMULATORS)), TILE_ACCUMULATORS)
}

/** Eight sums of four products. */
// @ts-ignore: decorator
@inline
function oneGroup<C>(packed: v128, x0: v128, x1: v128, mask: v128, book: v128): v128 {
  const q0 = v128.and(packed, mask)
  const q1 = v128.and(i16x8.shr_u(packed, 4), mask)
  return i16x8.add(pairs(x0, codes<C>(q0, book)), pairs(x1, codes<C>(q1, book)))
}

/** A unit of one row of IQ4, whose codes are two planes. */
// @ts-ignore: decorator
@inline
function addWide<S, U>(w: usize, s: usize, x: usize, mask: v128, low: v128, high: v128, scratch: usize): void {
  const a0 = v128.load(x)
  const a1 = v128.load(x, 16)
  const b0 = v128.load(x, 32)
  const b1 = v128.load(x, 48)
  const a = v128.load(w)
  const b = v128.load(w, 16)
  const lowAb = halves(oneGroup<i32>(a, a0, a1, mask, low), oneGroup<i32>(b, b0, b1, mask, low))
  const highAb = halves(oneGroup<i32>(a, a0, a1, mask, high), oneGroup<i32>(b, b0, b1, mask, high))
  v128.store(scratch, lowAb, TILE_ACCUMULATORS + PARTS)
  v128.store(scratch, highAb, TILE_ACCUMULATORS + PARTS)
  const c0 = v128.load(x, 64)
  const c1 = v128.load(x, 80)
  const d0 = v128.load(x, 96)
  const d1 = v128.load(x, 112)
  const c = v128.load(w, 32)
  const d = v128.load(w, 48)
  const lowSums = quarters(lowAb, halves(oneGroup<i32>(c, c0, c1, mask, low), oneGroup<i32>(d, d0, d1, mask, low)))
  const highSums = quarters(highAb, halves(oneGroup<i32>(c, c0, c1, mask, high), oneGroup<i32>(d, d0, d1, mask, high)))
  v128.store(scratch, lowSums, TILE_ACCUMULATORS + PARTS)
  v128.store(scratch, highSums, TILE_ACCUMULATORS + PARTS)
  const multiplier = isProduct<S>() ? doubledScales(s) : i16x8.splat(1)
  const sums = i32x4.add(i32x4.dot_i16x8_s(lowSums, multiplier), i32x4.dot_i16x8_s(highSums, i16x8.shl(multiplier, 4)))
  if (isProduct<S>()) {
    addSums<S, U>(sums, v128.load(x, 128), scratch)
    return
  }
  const scale = fourScales<S>(s)
  addSums<S, U>(sums, f32x4.mul(scale, v128.load(x, 128)), scratch)
  v128.store(scratch, madd(scale, v128.load(x, 144), v128.load(scratch, TILE_ACCUMULATORS)), TILE_ACCUMULATORS)
}
