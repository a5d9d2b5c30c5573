// Quantized weights × float32 activations: weights become floats (scale · q + bias, rounded once as everywhere), 32 columns
// at a time in eight vectors whose lanes are packed words, and meet one record or a tile of them (see matmulFast). A
// block's products are summed by themselves and added to one accumulator, blocks ascending: the order of every output.
// Type parameters as in matmulFast.
import { kept } from '../assembly/simd.as'
import { dot32, halfToFloat4, madd, sumLanes } from '../assembly/simd.as'
import { storeAddresses, TILE_ACCUMULATORS, TILE_ADDRESSES, TOKEN_TILE } from './layout.as'

export function matmulExact(
  out: usize, outStride: usize, outIndex: usize,
  weight: usize, scales: usize, biases: usize, scaleType: i32, bits: i32, group: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, act: usize, actStride: usize, actIndex: usize, tokens: i32, scratch: usize,
): void {
  for (let first = 0; first < tokens; first += TOKEN_TILE) {
    const count = min(TOKEN_TILE, tokens - first)
    storeAddresses(out, outStride, outIndex, act, actStride, actIndex, first, count, scratch)
    if (scaleType == 0) {
      if (bits == 4) rows<u16, u16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
      else if (bits == 8) rows<u32, u16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
      else rows<u8, u16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
    } else {
      if (bits == 4) rows<u16, i16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
      else if (bits == 8) rows<u32, i16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
      else rows<u8, i16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
    }
  }
}

function rows<B, S>(
  weight: usize, scales: usize, biases: usize, group: i32, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  const rowBytes = (<usize>cols * (2 * sizeof<B>())) >> 3
  const scaleBytes = <usize>(cols / group) << 1
  const accumulators = scratch + TILE_ACCUMULATORS
  for (let row = <usize>rowBegin; row < <usize>rowEnd; row++) {
    const w = weight + row * rowBytes
    const s = scales + row * scaleBytes
    const b = biases + row * scaleBytes
    if (sizeof<B>() == 1 && group == 32) {
      memory.fill(accumulators, 0, <usize>tokens << 4)
      pairs<S>(w, s, b, cols, tokens, scratch)
    } else if (tokens == 1) {
      v128.store(accumulators, rowOne<B, S>(w, s, b, group, cols, <usize>load<u32>(scratch)))
    } else {
      memory.fill(accumulators, 0, <usize>tokens << 4)
      groups<B, S>(w, s, b, group, cols, tokens, scratch)
    }
    for (let t: usize = 0; t < <usize>tokens; t++) {
      const to = <usize>load<u32>(scratch + (t << 2), TILE_ADDRESSES)
      store<f32>(to + (row << 2), sumLanes(v128.load(accumulators + (t << 4))))
    }
  }
}

function groups<B, S>(w: usize, s: usize, b: usize, group: i32, cols: i32, tokens: i32, scratch: usize): void {
  const end = <usize>cols << 2
  const groupFloats = <usize>group << 2
  const mask = i32x4.splat((1 << (2 * <i32>sizeof<B>())) - 1)
  for (let x: usize = 0; x < end; ) {
    const scale = splatFloat<S>(s)
    const bias = splatFloat<S>(b)
    s += 2
    b += 2
    for (const groupEnd = x + groupFloats; x < groupEnd; ) {
      const v = v128.load(w)
      w += 16
      if (sizeof<B>() == 4) {
        block<B>(v, v128.load(w), mask, scale, bias, x, tokens, scratch)
        w += 16
      } else {
        block<B>(v, v, mask, scale, bias, x, tokens, scratch)
        if (sizeof<B>() == 1) {
          x += 128
          const rest = i32x4.shr_u(v, 16)
          block<B>(rest, rest, mask, scale, bias, x, tokens, scratch)
        }
      }
      x += 128
    }
  }
}

/** `groups` for one record, with the accumulator in a register. */
function rowOne<B, S>(w: usize, s: usize, b: usize, group: i32, cols: i32, record: usize): v128 {
  const bits = 2 * <i32>sizeof<B>()
  const mask = kept(i32x4.splat((1 << bits) - 1))
  const end = record + (<usize>cols << 2)
  const groupFloats = <usize>group << 2
  let x = record
  let acc = f32x4.splat(0)
  do {
    const scale = splatFloat<S>(s)
    const bias = splatFloat<S>(b)
    const groupEnd = x + groupFloats
    do {
      const v = v128.load(w)
      const v1 = sizeof<B>() == 4 ? v128.load(w, 16) : v
      acc = f32x4.add(acc, blockDot<B>(v, v1, mask, scale, bias, x))
      if (sizeof<B>() == 1) {
        x += 128
        const rest = i32x4.shr_u(v, 16)
        acc = f32x4.add(acc, blockDot<B>(rest, rest, mask, scale, bias, x))
      }
      w += sizeof<B>() == 4 ? 32 : 16
      x += 128
    } while (x < groupEnd)
    s += 2
    b += 2
  } while (x < end)
  return acc
}

/** The order of `dot32`, with weights unpacked as they are needed. */
// @ts-ignore: decorator
@inline
function blockDot<B>(v: v128, v1: v128, mask: v128, scale: v128, bias: v128, x: usize): v128 {
  const bits = 2 * <i32>sizeof<B>()
  const wide = sizeof<B>() == 4
  let even = f32x4.mul(weights(v, mask, scale, bias), v128.load(x))
  let odd = f32x4.mul(weights(i32x4.shr_u(v, bits), mask, scale, bias), v128.load(x, 16))
  even = madd(weights(i32x4.shr_u(v, bits * 2), mask, scale, bias), v128.load(x, 32), even)
  odd = madd(weights(i32x4.shr_u(v, bits * 3), mask, scale, bias), v128.load(x, 48), odd)
  even = madd(weights(wide ? v1 : i32x4.shr_u(v, bits * 4), mask, scale, bias), v128.load(x, 64), even)
  odd = madd(weights(i32x4.shr_u(v1, wide ? bits : bits * 5), mask, scale, bias), v128.load(x, 80), odd)
  even = madd(weights(i32x4.shr_u(v1, wide ? bits * 2 : bits * 6), mask, scale, bias), v128.load(x, 96), even)
  odd = madd(weights(i32x4.shr_u(v1, wide ? bits * 3 : bits * 7), mask, scale, bias), v128.load(x, 112), odd)
  return f32x4.add(even, odd)
}

/** 2 bits in groups of 32: sixteen bytes hold two groups. */
function pairs<S>(w: usize, s: usize, b: usize, cols: i32, tokens: i32, scratch: usize): void {
  const mask = i32x4.splat(3)
  for (let c = 0; c < cols; c += 64) {
    const paired = c + 32 < cols
    const v = paired ? v128.load(w) : v128.load64_zero(w)
    const rest = i32x4.shr_u(v, 16)
    const scale = pairFloats<S>(s, paired)
    const bias = pairFloats<S>(b, paired)
    block<u8>(v, v, mask, scale, bias, <usize>c << 2, tokens, scratch)
    block<u8>(rest, rest, mask, scale, bias, (<usize>c << 2) + 128, tokens, scratch)
    w += 16
    s += 4
    b += 4
  }
}

/** Eight elements of each word of v (four of v and four of v1 with 8 bits) against bytes x and on of all records. */
// @ts-ignore: decorator
@inline
function block<B>(v: v128, v1: v128, mask: v128, scale: v128, bias: v128, x: usize, tokens: i32, scratch: usize): void {
  const bits = 2 * <i32>sizeof<B>()
  const w0 = weights(v, mask, scale, bias)
  const w1 = weights(i32x4.shr_u(v, bits), mask, scale, bias)
  const w2 = weights(i32x4.shr_u(v, bits * 2), mask, scale, bias)
  const w3 = weights(i32x4.shr_u(v, bits * 3), mask, scale, bias)
  const w4 = sizeof<B>() == 4 ? weights(v1, mask, scale, bias) : weights(i32x4.shr_u(v, bits * 4), mask, scale, bias)
  const w5 = weights(i32x4.shr_u(v1, sizeof<B>() == 4 ? bits : bits * 5), mask, scale, bias)
  const w6 = weights(i32x4.shr_u(v1, sizeof<B>() == 4 ? bits * 2 : bits * 6), mask, scale, bias)
  const w7 = weights(i32x4.shr_u(v1, sizeof<B>() == 4 ? bits * 3 : bits * 7), mask, scale, bias)
  let accumulator = scratch + TILE_ACCUMULATORS
  let address = scratch
  const end = scratch + (<usize>tokens << 2)
  do {
    const record = <usize>load<u32>(address) + x
    const sum = dot32(w0, w1, w2, w3, w4, w5, w6, w7, record)
    v128.store(accumulator, f32x4.add(v128.load(accumulator), sum))
    accumulator += 16
    address += 4
  } while (address < end)
}

// @ts-ignore: decorator
@inline
function weights(v: v128, mask: v128, scale: v128, bias: v128): v128 {
  return madd(f32x4.convert_i32x4_s(v128.and(v, mask)), scale, bias)
}

// @ts-ignore: decorator
@inline
function splatFloat<S>(address: usize): v128 {
  const raw = i32x4.splat(load<u16>(address))
  return isSigned<S>() ? halfToFloat4(raw) : i32x4.shl(raw, 16)
}

/** Two floats, each in two lanes; the second 0 where it is missing. */
// @ts-ignore: decorator
@inline
function pairFloats<S>(address: usize, paired: bool): v128 {
  const second = paired ? load<u16>(address, 2) : 0
  const raw = i32x4.replace_lane(i32x4.replace_lane(i32x4.splat(load<u16>(address)), 2, second), 3, second)
  return isSigned<S>() ? halfToFloat4(raw) : i32x4.shl(raw, 16)
}
