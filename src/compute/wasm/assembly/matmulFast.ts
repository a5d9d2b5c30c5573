// Quantized weights × int8 activations. The sums of a unit (layout.ts) are four exact integers, sixteen columns each in a
// fixed pattern; each is scaled and added to its lane of one float accumulator, units ascending. Biases have an
// accumulator of their own, with group g in lane g mod 4. That is the order of every output, whatever the number of
// tokens, and without fused multiply-adds both builds give the same bits.
//
// One token: a row at a time, because one stream from memory is faster than several. More: a unit of weights is unpacked
// once and meets a tile of tokens, whose accumulators are in scratch. Loops are kept to one unit, because V8 schedules
// all loads of a block first and spills what it has no registers for.
//
// Type parameters carry constants, so that each layout is a function of its own: bits = 2 · sizeof<B> (u8, u16, u32: 2,
// 4, 8), group = 32 · sizeof<G> (u8, u16, u32: 32, 64, 128), S signed: F16 scales, else BF16.
import { dotBytes, halfToFloat4, loadFloats4, loadFloatsTail } from './simd'
import { sumsOffset, TILE_ADDRESSES, TOKEN_TILE, unitColumns, unitStride } from './layout'

export function matmulFast(
  out: usize, outStride: usize, outIndex: usize,
  weight: usize, scales: usize, biases: usize, scaleType: i32, bits: i32, group: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, act: usize, actStride: usize, actIndex: usize, tokens: i32, scratch: usize,
): void {
  for (let first = 0; first < tokens; first += TOKEN_TILE) {
    const count = min(TOKEN_TILE, tokens - first)
    // Records' addresses, then outputs' addresses.
    for (let t = 0; t < count; t++) {
      const from = actIndex ? load<u32>(actIndex + (<usize>(first + t) << 2)) : first + t
      const to = outIndex ? load<u32>(outIndex + (<usize>(first + t) << 2)) : first + t
      store<u32>(scratch + (<usize>t << 2), <u32>(act + <usize>from * actStride))
      store<u32>(scratch + (<usize>t << 2), <u32>(out + <usize>to * outStride), TILE_ADDRESSES)
    }
    if (scaleType == 0) {
      if (bits == 4) byGroup<u16, u16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
      else if (bits == 8) byGroup<u32, u16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
      else byGroup<u8, u16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
    } else {
      if (bits == 4) byGroup<u16, i16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
      else if (bits == 8) byGroup<u32, i16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
      else byGroup<u8, i16>(weight, scales, biases, group, cols, rowBegin, rowEnd, count, scratch)
    }
  }
}

function byGroup<B, S>(
  weight: usize, scales: usize, biases: usize, group: i32, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  const rowBytes = (<usize>cols * (2 * sizeof<B>())) >> 3
  const scaleBytes = <usize>(cols / group) << 1
  const ones = i16x8.splat(1)
  const mask = i8x16.splat(sizeof<B>() == 1 ? 3 : 15)
  for (let row = <usize>rowBegin; row < <usize>rowEnd; row++) {
    const w = weight + row * rowBytes
    const s = scales + row * scaleBytes
    const b = biases + row * scaleBytes
    if (tokens == 1) {
      const record = <usize>load<u32>(scratch)
      let sum: v128
      if (group == 64) sum = rowOne<B, u16, S>(w, s, cols, record, mask, ones)
      else if (group == 128) sum = rowOne<B, u32, S>(w, s, cols, record, mask, ones)
      else sum = rowOne<B, u8, S>(w, s, cols, record, mask, ones)
      const bias = rowBias<S>(b, cols / group, record + sumsOffset(cols, <i32>(2 * sizeof<B>()), group))
      store<f32>(<usize>load<u32>(scratch, TILE_ADDRESSES) + (row << 2), total(f32x4.add(sum, bias)))
      continue
    }
    if (group == 64) rowMany<B, u16, S>(w, s, cols, tokens, scratch, mask, ones)
    else if (group == 128) rowMany<B, u32, S>(w, s, cols, tokens, scratch, mask, ones)
    else rowMany<B, u8, S>(w, s, cols, tokens, scratch, mask, ones)
    for (let t: usize = 0; t < <usize>tokens; t++) {
      const record = <usize>load<u32>(scratch + (t << 2))
      const bias = rowBias<S>(b, cols / group, record + sumsOffset(cols, <i32>(2 * sizeof<B>()), group))
      const sum = v128.load(scratch + (t << 4), 2 * TILE_ADDRESSES)
      store<f32>(<usize>load<u32>(scratch + (t << 2), TILE_ADDRESSES) + (row << 2), total(f32x4.add(sum, bias)))
    }
  }
}

/** The accumulator of one row for one record. Mask and ones are arguments: V8 rebuilds constants in every iteration. */
function rowOne<B, G, S>(w: usize, s: usize, cols: i32, record: usize, mask: v128, ones: v128): v128 {
  const bits = <i32>(2 * sizeof<B>())
  const group = <i32>(32 * sizeof<G>())
  const columns = unitColumns(bits, group)
  const perGroup = max(1, group / columns)
  const unitBytes = <usize>((columns * bits) >> 3)
  const end = record + sumsOffset(cols, bits, group)
  let x = record
  let acc = f32x4.splat(0)
  do {
    let scale: v128
    let sums: v128
    if (sizeof<B>() == 1 && sizeof<G>() == 1) {
      const paired = x + 160 <= end || !(cols & 32)
      scale = pairScale<S>(s, paired)
      sums = unitSums<B, G>(paired ? v128.load(w) : v128.load64_zero(w), mask, mask, ones, x)
      s += 4
    } else {
      scale = splatScale<S>(s)
      if (perGroup > 1) {
        for (let u = 1; u < perGroup; u++) {
          sums = unitSums<B, G>(v128.load(w), unitBytes > 16 ? v128.load(w, 16) : mask, mask, ones, x)
          acc = accumulate(acc, sums, scale, x + columns)
          w += unitBytes
          x += columns + 16
        }
      }
      sums = unitSums<B, G>(v128.load(w), unitBytes > 16 ? v128.load(w, 16) : mask, mask, ones, x)
      s += 2
    }
    acc = accumulate(acc, sums, scale, x + columns)
    w += unitBytes
    x += columns + 16
  } while (x < end)
  return acc
}

/** The accumulators of one row for a tile of records, into scratch. */
function rowMany<B, G, S>(w: usize, s: usize, cols: i32, tokens: i32, scratch: usize, mask: v128, ones: v128): void {
  const bits = <i32>(2 * sizeof<B>())
  const group = <i32>(32 * sizeof<G>())
  const columns = unitColumns(bits, group)
  const perGroup = max(1, group / columns)
  const unitBytes = <usize>((columns * bits) >> 3)
  const accumulators = scratch + 2 * TILE_ADDRESSES
  const tileEnd = scratch + (<usize>tokens << 2)
  memory.fill(accumulators, 0, <usize>tokens << 4)
  const end = sumsOffset(cols, bits, group)
  let x: usize = 0
  let left = 0
  let scale = f32x4.splat(0)
  do {
    let a: v128
    if (sizeof<B>() == 1 && sizeof<G>() == 1) {
      const paired = x + 160 <= end || !(cols & 32)
      scale = pairScale<S>(s, paired)
      a = paired ? v128.load(w) : v128.load64_zero(w)
      s += 4
    } else {
      if (perGroup == 1 || left == 0) {
        scale = splatScale<S>(s)
        s += 2
        left = perGroup
      }
      left--
      a = v128.load(w)
    }
    const b = unitBytes > 16 ? v128.load(w, 16) : a
    const q0 = v128.and(a, mask)
    const q1 = v128.and(i16x8.shr_u(a, bits == 2 ? 2 : 4), mask)
    const q2 = bits == 2 ? v128.and(i16x8.shr_u(a, 4), mask) : v128.and(b, mask)
    const q3 = bits == 2 ? v128.and(i16x8.shr_u(a, 6), mask) : v128.and(i16x8.shr_u(b, 4), mask)
    let accumulator = accumulators
    for (let address = scratch; address < tileEnd; address += 4) {
      const record = <usize>load<u32>(address) + x
      const sums = integerSums<B, G>(q0, q1, q2, q3, ones, record)
      v128.store(accumulator, accumulate(v128.load(accumulator), sums, scale, record + columns))
      accumulator += 16
    }
    w += unitBytes
    x += columns + 16
  } while (x < end)
}

// @ts-ignore: decorator
@inline
function accumulate(acc: v128, sums: v128, scale: v128, xScale: usize): v128 {
  return f32x4.add(acc, f32x4.mul(f32x4.convert_i32x4_s(sums), f32x4.mul(scale, v128.load(xScale))))
}

/** The four integer sums of a unit whose weights are the vector a, or a and b. */
// @ts-ignore: decorator
@inline
function unitSums<B, G>(a: v128, b: v128, mask: v128, ones: v128, x: usize): v128 {
  if (sizeof<B>() == 1) {
    const q1 = v128.and(i16x8.shr_u(a, 2), mask)
    const q2 = v128.and(i16x8.shr_u(a, 4), mask)
    return integerSums<B, G>(v128.and(a, mask), q1, q2, v128.and(i16x8.shr_u(a, 6), mask), ones, x)
  }
  const q1 = v128.and(i16x8.shr_u(a, 4), mask)
  return integerSums<B, G>(v128.and(a, mask), q1, v128.and(b, mask), v128.and(i16x8.shr_u(b, 4), mask), ones, x)
}

/** Lane l: the bytes 4l to 4l + 3 of all vectors. A 16-bit lane holds at most 8 · 15 · 127 = 15240 before that. */
// @ts-ignore: decorator
@inline
function integerSums<B, G>(q0: v128, q1: v128, q2: v128, q3: v128, ones: v128, x: usize): v128 {
  if (sizeof<B>() == 4) {
    // 8 bits as two nibbles that meet the same activations: low + 16 · high.
    const x0 = v128.load(x)
    const x1 = v128.load(x, 16)
    const sixteens = i16x8.shl(ones, 4)
    return i32x4.add(pairSums(x0, q0, x1, q2, ones), pairSums(x0, q1, x1, q3, sixteens))
  }
  if (sizeof<B>() == 2 && sizeof<G>() == 1) return pairSums(v128.load(x), q0, v128.load(x, 16), q1, ones)
  if (ASC_FEATURE_RELAXED_SIMD) {
    let sum = dotBytes(v128.load(x), q0)
    sum = i16x8.add(sum, dotBytes(v128.load(x, 16), q1))
    sum = i16x8.add(sum, dotBytes(v128.load(x, 32), q2))
    return i32x4.dot_i16x8_s(i16x8.add(sum, dotBytes(v128.load(x, 48), q3)), ones)
  }
  let at = v128.load(x)
  let low = i16x8.extmul_low_i8x16_s(at, q0)
  let high = i16x8.extmul_high_i8x16_s(at, q0)
  at = v128.load(x, 16)
  low = i16x8.add(low, i16x8.extmul_low_i8x16_s(at, q1))
  high = i16x8.add(high, i16x8.extmul_high_i8x16_s(at, q1))
  at = v128.load(x, 32)
  low = i16x8.add(low, i16x8.extmul_low_i8x16_s(at, q2))
  high = i16x8.add(high, i16x8.extmul_high_i8x16_s(at, q2))
  at = v128.load(x, 48)
  low = i16x8.add(low, i16x8.extmul_low_i8x16_s(at, q3))
  high = i16x8.add(high, i16x8.extmul_high_i8x16_s(at, q3))
  return fours(low, high, ones)
}

// @ts-ignore: decorator
@inline
function pairSums(x0: v128, q0: v128, x1: v128, q1: v128, factors: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return i32x4.dot_i16x8_s(i16x8.add(dotBytes(x0, q0), dotBytes(x1, q1)), factors)
  const low = i16x8.add(i16x8.extmul_low_i8x16_s(x0, q0), i16x8.extmul_low_i8x16_s(x1, q1))
  const high = i16x8.add(i16x8.extmul_high_i8x16_s(x0, q0), i16x8.extmul_high_i8x16_s(x1, q1))
  return fours(low, high, factors)
}

/** Sums of four neighbours among sixteen products, times the factors. */
// @ts-ignore: decorator
@inline
function fours(low: v128, high: v128, factors: v128): v128 {
  const a = i32x4.dot_i16x8_s(low, factors)
  const b = i32x4.dot_i16x8_s(high, factors)
  return i32x4.add(v128.shuffle<i32>(a, b, 0, 2, 4, 6), v128.shuffle<i32>(a, b, 1, 3, 5, 7))
}

// @ts-ignore: decorator
@inline
function splatScale<S>(s: usize): v128 {
  const raw = v128.load16_splat(s)
  if (isSigned<S>()) return halfToFloat4(v128.and(raw, i32x4.splat(0xffff)))
  return i32x4.shl(raw, 16)
}

/** The scales of two groups, each in two lanes. */
// @ts-ignore: decorator
@inline
function pairScale<S>(s: usize, paired: bool): v128 {
  const second = paired ? load<u16>(s, 2) : 0
  const raw = i32x4.replace_lane(i32x4.replace_lane(i32x4.splat(load<u16>(s)), 2, second), 3, second)
  return isSigned<S>() ? halfToFloat4(raw) : i32x4.shl(raw, 16)
}

/** Σ over groups of bias · Σx, group g in lane g mod 4. */
// @ts-ignore: decorator
@inline
function rowBias<S>(biases: usize, groups: i32, sums: usize): v128 {
  const half = isSigned<S>()
  let acc = f32x4.splat(0)
  for (let g = groups >> 2; g > 0; g--) {
    acc = f32x4.add(acc, f32x4.mul(loadFloats4(biases, half), v128.load(sums)))
    biases += 8
    sums += 16
  }
  if (groups & 3) acc = f32x4.add(acc, f32x4.mul(loadFloatsTail(biases, groups & 3, half), v128.load(sums)))
  return acc
}

// @ts-ignore: decorator
@inline
function total(a: v128): f32 {
  return f32x4.extract_lane(a, 0) + f32x4.extract_lane(a, 1) + (f32x4.extract_lane(a, 2) + f32x4.extract_lane(a, 3))
}
