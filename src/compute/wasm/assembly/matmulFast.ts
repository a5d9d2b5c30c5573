// Quantized weights × int8 activations. A group's dot product is an exact integer; group g of a row then goes to lane
// g mod 4 of one float accumulator, groups ascending, and the lanes are summed at the end: the order of every output,
// whatever the number of tokens. No fused multiply-add here, so both builds give the same bits.
//
// Type parameters carry constants, so that each layout is a function of its own: bits = 2 · sizeof<B> (u8, u16, u32: 2,
// 4, 8), group = 32 · sizeof<G> (u8, u16, u32: 32, 64, 128), S signed: F16 scales, else BF16.
import { dotBytes, loadFloats4, loadFloatsTail } from './simd'
import { fastScales, fastSums } from './prepare'

export function matmulFast(
  out: usize, outStride: usize, outIndex: usize,
  weight: usize, scales: usize, biases: usize, scaleType: i32, bits: i32, group: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, act: usize, actStride: usize, actIndex: usize, tokens: i32,
): void {
  if (scaleType == 0) {
    if (bits == 4) byGroup<u16, u16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
    else if (bits == 8) byGroup<u32, u16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
    else byGroup<u8, u16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
  } else {
    if (bits == 4) byGroup<u16, i16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
    else if (bits == 8) byGroup<u32, i16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
    else byGroup<u8, i16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
  }
}

function byGroup<B, S>(
  out: usize, outStride: usize, outIndex: usize, weight: usize, scales: usize, biases: usize, group: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, act: usize, actStride: usize, actIndex: usize, tokens: i32,
): void {
  if (group == 64) rows<B, u16, S>(out, outStride, outIndex, weight, scales, biases, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
  else if (group == 128) rows<B, u32, S>(out, outStride, outIndex, weight, scales, biases, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
  else rows<B, u8, S>(out, outStride, outIndex, weight, scales, biases, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
}

function rows<B, G, S>(
  out: usize, outStride: usize, outIndex: usize, weight: usize, scales: usize, biases: usize, cols: i32,
  rowBegin: i32, rowEnd: i32, act: usize, actStride: usize, actIndex: usize, tokens: i32,
): void {
  const group = 32 * sizeof<G>()
  const rowBytes = (<usize>cols * (2 * sizeof<B>())) >> 3
  const scaleBytes = (<usize>cols / group) << 1
  for (let row = rowBegin; row < rowEnd; row++) {
    const w = weight + <usize>row * rowBytes
    const s = scales + <usize>row * scaleBytes
    const b = biases + <usize>row * scaleBytes
    for (let t = 0; t < tokens; t++) {
      const from = actIndex ? load<u32>(actIndex + (<usize>t << 2)) : t
      const to = outIndex ? load<u32>(outIndex + (<usize>t << 2)) : t
      store<f32>(out + <usize>to * outStride + (<usize>row << 2), rowDot<B, G, S>(w, s, b, cols, act + <usize>from * actStride))
    }
  }
}

function rowDot<B, G, S>(weight: usize, scales: usize, biases: usize, cols: i32, record: usize): f32 {
  const half = isSigned<S>()
  const group = <usize>(32 * sizeof<G>())
  const groupBytes = (group * (2 * sizeof<B>())) >> 3
  const groups = <i32>(<usize>cols / group)
  let x = record
  let xScale = record + fastScales(cols)
  let xSum = record + fastSums(cols, <i32>group)
  let acc = f32x4.splat(0)
  for (let g = groups >> 2; g > 0; g--) {
    acc = scaled(acc, sums4<B, G>(weight, x), loadFloats4(scales, half), loadFloats4(biases, half), xScale, xSum)
    weight += groupBytes << 2
    scales += 8
    biases += 8
    x += group << 2
    xScale += 16
    xSum += 16
  }
  const rest = groups & 3
  if (rest) {
    let sums = i32x4.splat(0)
    for (let g = 0; g < rest; g++) {
      const sum = sum1<B, G>(weight + <usize>g * groupBytes, x, g)
      if (g == 0) sums = i32x4.replace_lane(sums, 0, sum)
      else if (g == 1) sums = i32x4.replace_lane(sums, 1, sum)
      else sums = i32x4.replace_lane(sums, 2, sum)
    }
    acc = scaled(acc, sums, loadFloatsTail(scales, rest, half), loadFloatsTail(biases, rest, half), xScale, xSum)
  }
  return f32x4.extract_lane(acc, 0) + f32x4.extract_lane(acc, 1) + (f32x4.extract_lane(acc, 2) + f32x4.extract_lane(acc, 3))
}

/** acc + Σq·x · (s · xScale) + b · Σx, four groups in the lanes. */
// @ts-ignore: decorator
@inline
function scaled(acc: v128, sums: v128, s: v128, b: v128, xScale: usize, xSum: usize): v128 {
  const products = f32x4.mul(f32x4.convert_i32x4_s(sums), f32x4.mul(s, v128.load(xScale)))
  return f32x4.add(f32x4.add(acc, products), f32x4.mul(b, v128.load(xSum)))
}

/** The integer sums of four consecutive groups, one per lane. */
// @ts-ignore: decorator
@inline
function sums4<B, G>(w: usize, x: usize): v128 {
  const group = <usize>(32 * sizeof<G>())
  const bytes = (group * (2 * sizeof<B>())) >> 3
  if (sizeof<B>() == 1 && sizeof<G>() == 1) {
    // Sixteen bytes hold two groups.
    if (!ASC_FEATURE_RELAXED_SIMD) {
      const first = i64x2(-1, 0)
      const ab = v128.load(w)
      const cd = v128.load(w, 16)
      return sumLanes4i16(
        dots2(v128.and(ab, first), x),
        dots2(v128.andnot(ab, first), x),
        dots2(v128.and(cd, first), x + 64),
        dots2(v128.andnot(cd, first), x + 64),
      )
    }
    const ones = i16x8.splat(1)
    const ab = i32x4.dot_i16x8_s(dots2(v128.load(w), x), ones)
    const cd = i32x4.dot_i16x8_s(dots2(v128.load(w, 16), x + 64), ones)
    return i32x4.add(v128.shuffle<i32>(ab, cd, 0, 2, 4, 6), v128.shuffle<i32>(ab, cd, 1, 3, 5, 7))
  }
  if (sizeof<B>() == 4 || (sizeof<B>() == 2 && sizeof<G>() == 4)) {
    return sumLanes4i32(
      groupSum32<B, G>(w, x),
      groupSum32<B, G>(w + bytes, x + group),
      groupSum32<B, G>(w + 2 * bytes, x + 2 * group),
      groupSum32<B, G>(w + 3 * bytes, x + 3 * group),
    )
  }
  return sumLanes4i16(
    groupSum16<B, G>(w, x),
    groupSum16<B, G>(w + bytes, x + group),
    groupSum16<B, G>(w + 2 * bytes, x + 2 * group),
    groupSum16<B, G>(w + 3 * bytes, x + 3 * group),
  )
}

/** The integer sum of one group; `index` among up to three left over, x where the first of them begins. */
// @ts-ignore: decorator
@inline
function sum1<B, G>(w: usize, x: usize, index: i32): i32 {
  const group = <usize>(32 * sizeof<G>())
  const ones = i16x8.splat(1)
  let sum: v128
  if (sizeof<B>() == 1 && sizeof<G>() == 1) {
    // Eight bytes of weights against the half of each phase that is this group's.
    const at = x + (<usize>(index >> 1) << 6) + (<usize>(index & 1) << 3)
    const v = v128.load64_zero(w)
    const mask = i8x16.splat(3)
    let d = dotBytes(v128.load64_zero(at), v128.and(v, mask))
    d = i16x8.add(d, dotBytes(v128.load64_zero(at, 16), v128.and(i16x8.shr_u(v, 2), mask)))
    d = i16x8.add(d, dotBytes(v128.load64_zero(at, 32), v128.and(i16x8.shr_u(v, 4), mask)))
    d = i16x8.add(d, dotBytes(v128.load64_zero(at, 48), v128.and(i16x8.shr_u(v, 6), mask)))
    sum = i32x4.dot_i16x8_s(d, ones)
  } else {
    const at = x + <usize>index * group
    if (sizeof<B>() == 4) sum = groupSum32<B, G>(w, at)
    else sum = i32x4.dot_i16x8_s(groupSum16<B, G>(w, at), ones)
  }
  return i32x4.extract_lane(sum, 0) + i32x4.extract_lane(sum, 1) + i32x4.extract_lane(sum, 2) + i32x4.extract_lane(sum, 3)
}

/** i32x4 whose lanes sum up to the group's dot product. */
// @ts-ignore: decorator
@inline
function groupSum32<B, G>(w: usize, x: usize): v128 {
  if (sizeof<B>() == 4) {
    // 8 bits as two nibbles against the same activations: 16 · high + low.
    let low = i16x8.splat(0)
    let high = i16x8.splat(0)
    const mask = i8x16.splat(15)
    for (let i: usize = 0; i < 32 * sizeof<G>(); i += 16) {
      const v = v128.load(w + i)
      const at = v128.load(x + i)
      low = i16x8.add(low, dotBytes(at, v128.and(v, mask)))
      high = i16x8.add(high, dotBytes(at, v128.and(i16x8.shr_u(v, 4), mask)))
    }
    return i32x4.add(i32x4.dot_i16x8_s(low, i16x8.splat(1)), i32x4.dot_i16x8_s(high, i16x8.splat(16)))
  }
  return i32x4.dot_i16x8_s(groupSum16<B, G>(w, x), i16x8.splat(1))
}

/** i16x8 whose lanes sum up to the group's dot product: at most 128 / 8 · 15 · 127 = 30480 each. */
// @ts-ignore: decorator
@inline
function groupSum16<B, G>(w: usize, x: usize): v128 {
  if (sizeof<B>() == 1) {
    let sum = dots2(v128.load(w), x)
    if (sizeof<G>() == 4) sum = i16x8.add(sum, dots2(v128.load(w, 16), x + 64))
    return sum
  }
  let sum = dots4(v128.load(w), x)
  if (sizeof<G>() >= 2) sum = i16x8.add(sum, dots4(v128.load(w, 16), x + 32))
  if (sizeof<G>() == 4) {
    sum = i16x8.add(sum, dots4(v128.load(w, 32), x + 64))
    sum = i16x8.add(sum, dots4(v128.load(w, 48), x + 96))
  }
  return sum
}

/** 32 weights of 4 bits. */
// @ts-ignore: decorator
@inline
function dots4(v: v128, x: usize): v128 {
  const mask = i8x16.splat(15)
  return i16x8.add(
    dotBytes(v128.load(x), v128.and(v, mask)),
    dotBytes(v128.load(x, 16), v128.and(i16x8.shr_u(v, 4), mask)),
  )
}

/** 64 weights of 2 bits. */
// @ts-ignore: decorator
@inline
function dots2(v: v128, x: usize): v128 {
  const mask = i8x16.splat(3)
  return i16x8.add(
    i16x8.add(dotBytes(v128.load(x), v128.and(v, mask)), dotBytes(v128.load(x, 16), v128.and(i16x8.shr_u(v, 2), mask))),
    i16x8.add(
      dotBytes(v128.load(x, 32), v128.and(i16x8.shr_u(v, 4), mask)),
      dotBytes(v128.load(x, 48), v128.and(i16x8.shr_u(v, 6), mask)),
    ),
  )
}

/** [Σa, Σb, Σc, Σd] of i32 lanes. */
// @ts-ignore: decorator
@inline
function sumLanes4i32(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = i32x4.add(v128.shuffle<i32>(a, b, 0, 4, 1, 5), v128.shuffle<i32>(a, b, 2, 6, 3, 7))
  const cd = i32x4.add(v128.shuffle<i32>(c, d, 0, 4, 1, 5), v128.shuffle<i32>(c, d, 2, 6, 3, 7))
  return i32x4.add(v128.shuffle<i32>(ab, cd, 0, 1, 4, 5), v128.shuffle<i32>(ab, cd, 2, 3, 6, 7))
}

/** [Σa, Σb, Σc, Σd] of i16 lanes that are below 2^14, as i32: pairs of lanes are moved first and widened late. */
// @ts-ignore: decorator
@inline
function sumLanes4i16(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = i16x8.add(v128.shuffle<i32>(a, b, 0, 4, 1, 5), v128.shuffle<i32>(a, b, 2, 6, 3, 7))
  const cd = i16x8.add(v128.shuffle<i32>(c, d, 0, 4, 1, 5), v128.shuffle<i32>(c, d, 2, 6, 3, 7))
  const ones = i16x8.splat(1)
  return i32x4.add(
    i32x4.dot_i16x8_s(v128.shuffle<i32>(ab, cd, 0, 1, 4, 5), ones),
    i32x4.dot_i16x8_s(v128.shuffle<i32>(ab, cd, 2, 3, 6, 7), ones),
  )
}
