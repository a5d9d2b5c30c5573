// Four-bit codes in groups of 32 (Q4_K, MXFP4, IQ4; type parameters of blocks.as.ts) × float32 activations in records of matmulExact:
// a group is a block of 32 columns whose weights become eight vectors of floats, rounded once as everywhere, and meet one record
// or a tile of them. A block's products are summed by themselves and added to one accumulator, blocks ascending. Scales of E8M0
// are powers of two, so a block's sum is multiplied by it instead of each weight: no bit differs.
import { lookUp, scaleBytes, signedBook, UNIT, unitBytes } from './blocks.as'
import { widenedBytes, widenScales } from './blocks.as'
import { kept } from '../assembly/simd.as'
import { TILE_ACCUMULATORS, TILE_ADDRESSES, TILE_RECORDS } from './layout.as'
import { dot32, madd, sumLanes } from '../assembly/simd.as'

/** Rows [rowBegin, rowEnd) for records and outputs whose addresses are in scratch. */
export function nibblesExact<C, S>(
  weight: usize, scales: usize, span: i32, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  const rowBytes = unitBytes<C>() * <usize>cols / UNIT
  const rowScales = scaleBytes<S, u16>(span, cols)
  const accumulators = scratch + TILE_ACCUMULATORS
  const floats = scratch + TILE_RECORDS
  for (let row = <usize>rowBegin; row < <usize>rowEnd; row++) {
    const w = weight + row * rowBytes
    widenScales<S, u16>(scales + row * rowScales, span, cols, floats, scratch)
    if (tokens == 1) v128.store(accumulators, rowOne<C, S>(w, floats, cols, <usize>load<u32>(scratch)))
    else rowMany<C, S>(w, floats, cols, tokens, scratch)
    for (let t: usize = 0; t < <usize>tokens; t++) {
      const to = <usize>load<u32>(scratch + (t << 2), TILE_ADDRESSES)
      store<f32>(to + (row << 2), sumLanes(v128.load(accumulators + (t << 4))))
    }
  }
}

/** The order of `dot32`, with weights unpacked as they are needed. */
function rowOne<C, S>(w: usize, scales: usize, cols: i32, record: usize): v128 {
  const minima = widenedBytes<u16>(cols)
  const book = kept(signedBook<C>())
  const mask = nibbleMask<C>()
  const end = record + (<usize>cols << 2)
  let x = record
  let acc = f32x4.splat(0)
  do {
    const scale = v128.load32_splat(scales)
    const minimum = isMinima<S>() ? f32x4.neg(v128.load32_splat(scales + minima)) : scale
    const low = lowCodes<C>(v128.load(w), book, mask)
    const high = highCodes<C>(v128.load(w), book, mask)
    let even = f32x4.mul(weights<C, S, u8>(low, scale, minimum, mask), v128.load(x))
    let odd = f32x4.mul(weights<C, S, u8>(high, scale, minimum, mask), v128.load(x, 16))
    even = madd(weights<C, S, u16>(low, scale, minimum, mask), v128.load(x, 32), even)
    odd = madd(weights<C, S, u16>(high, scale, minimum, mask), v128.load(x, 48), odd)
    even = madd(weights<C, S, u32>(low, scale, minimum, mask), v128.load(x, 64), even)
    odd = madd(weights<C, S, u32>(high, scale, minimum, mask), v128.load(x, 80), odd)
    even = madd(weights<C, S, u64>(low, scale, minimum, mask), v128.load(x, 96), even)
    odd = madd(weights<C, S, u64>(high, scale, minimum, mask), v128.load(x, 112), odd)
    acc = addBlock<S>(f32x4.add(even, odd), scale, acc)
    w += 16
    scales += 4
    x += 128
  } while (x < end)
  return acc
}

function rowMany<C, S>(w: usize, scales: usize, cols: i32, tokens: i32, scratch: usize): void {
  memory.fill(scratch + TILE_ACCUMULATORS, 0, <usize>tokens << 4)
  const minima = widenedBytes<u16>(cols)
  const book = kept(signedBook<C>())
  const mask = nibbleMask<C>()
  const tileEnd = scratch + (<usize>tokens << 2)
  for (let x: usize = 0, end = <usize>cols << 2; x < end; x += 128) {
    const scale = v128.load32_splat(scales)
    const minimum = isMinima<S>() ? f32x4.neg(v128.load32_splat(scales + minima)) : scale
    const low = lowCodes<C>(v128.load(w), book, mask)
    const high = highCodes<C>(v128.load(w), book, mask)
    const w0 = weights<C, S, u8>(low, scale, minimum, mask)
    const w1 = weights<C, S, u8>(high, scale, minimum, mask)
    const w2 = weights<C, S, u16>(low, scale, minimum, mask)
    const w3 = weights<C, S, u16>(high, scale, minimum, mask)
    const w4 = weights<C, S, u32>(low, scale, minimum, mask)
    const w5 = weights<C, S, u32>(high, scale, minimum, mask)
    const w6 = weights<C, S, u64>(low, scale, minimum, mask)
    const w7 = weights<C, S, u64>(high, scale, minimum, mask)
    let accumulator = scratch + TILE_ACCUMULATORS
    let address = scratch
    do {
      const sum = dot32(w0, w1, w2, w3, w4, w5, w6, w7, <usize>load<u32>(address) + x)
      v128.store(accumulator, addBlock<S>(sum, scale, v128.load(accumulator)))
      accumulator += 16
      address += 4
    } while (address < tileEnd)
    w += 16
    scales += 4
  }
}

// @ts-ignore: decorator
@inline
function isMinima<S>(): bool {
  return sizeof<S>() == 1 && !isSigned<S>()
}

// @ts-ignore: decorator
@inline
function addBlock<S>(sum: v128, scale: v128, acc: v128): v128 {
  return sizeof<S>() == 4 ? madd(sum, scale, acc) : f32x4.add(acc, sum)
}

/** What leaves a nibble of each byte, or of each word where codes are no bytes. */
// @ts-ignore: decorator
@inline
function nibbleMask<C>(): v128 {
  return kept(isSigned<C>() ? i8x16.splat(15) : i32x4.splat(15))
}

/** The codes of low nibbles; without a book they are left where they are. */
// @ts-ignore: decorator
@inline
function lowCodes<C>(packed: v128, book: v128, mask: v128): v128 {
  return isSigned<C>() ? lookUp(book, v128.and(packed, mask)) : packed
}

// @ts-ignore: decorator
@inline
function highCodes<C>(packed: v128, book: v128, mask: v128): v128 {
  const shifted = i32x4.shr_u(packed, 4)
  return isSigned<C>() ? lookUp(book, v128.and(shifted, mask)) : shifted
}

/** Weights of the byte B (u8, u16, u32, u64: 0 to 3) of each word of codes. */
// @ts-ignore: decorator
@inline
function weights<C, S, B>(codes: v128, scale: v128, minimum: v128, mask: v128): v128 {
  const byte = sizeof<B>() == 8 ? 3 : <i32>(sizeof<B>() >> 1)
  if (!isSigned<C>()) {
    return madd(f32x4.convert_i32x4_s(v128.and(i32x4.shr_u(codes, byte * 8), mask)), scale, minimum)
  }
  const values = f32x4.convert_i32x4_s(i32x4.shr_s(i32x4.shl(codes, 24 - byte * 8), 24))
  return sizeof<S>() == 4 ? values : f32x4.mul(values, scale)
}
