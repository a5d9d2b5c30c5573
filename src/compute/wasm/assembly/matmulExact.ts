// Quantized weights × float32 activations. Weights are masked where they lie in their words (the records of prepareExact
// are divided to match), so lanes are words. Each group is summed by itself, scaled, and added to the row's accumulator,
// groups ascending; the biases have an accumulator of their own. Type parameters as in matmulFast.
import { loadFloats4, loadFloatsTail, halfToFloat4, madd, sumLanes } from './simd'
import { exactSums } from './prepare'

export function matmulExact(
  out: usize, outStride: usize, outIndex: usize,
  weight: usize, scales: usize, biases: usize, scaleType: i32, bits: i32, group: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, act: usize, actStride: usize, actIndex: usize, tokens: i32,
): void {
  if (scaleType == 0) {
    if (bits == 4) rows<u16, u16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
    else if (bits == 8) rows<u32, u16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
    else rows<u8, u16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
  } else {
    if (bits == 4) rows<u16, i16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
    else if (bits == 8) rows<u32, i16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
    else rows<u8, i16>(out, outStride, outIndex, weight, scales, biases, group, cols, rowBegin, rowEnd, act, actStride, actIndex, tokens)
  }
}

function rows<B, S>(
  out: usize, outStride: usize, outIndex: usize, weight: usize, scales: usize, biases: usize, group: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, act: usize, actStride: usize, actIndex: usize, tokens: i32,
): void {
  const rowBytes = (<usize>cols * (2 * sizeof<B>())) >> 3
  const scaleBytes = <usize>(cols / group) << 1
  for (let row = rowBegin; row < rowEnd; row++) {
    const w = weight + <usize>row * rowBytes
    const s = scales + <usize>row * scaleBytes
    const b = biases + <usize>row * scaleBytes
    for (let t = 0; t < tokens; t++) {
      const from = actIndex ? load<u32>(actIndex + (<usize>t << 2)) : t
      const to = outIndex ? load<u32>(outIndex + (<usize>t << 2)) : t
      const record = act + <usize>from * actStride
      const dot = sizeof<B>() == 1 && group == 32 ? rowDot2x32<S>(w, s, cols, record) : rowDot<B, S>(w, s, group, cols, record)
      store<f32>(out + <usize>to * outStride + (<usize>row << 2), dot + rowBias<S>(b, group, cols, record))
    }
  }
}

/** Σ over groups of scale · Σ q·x. */
function rowDot<B, S>(weight: usize, scales: usize, group: i32, cols: i32, record: usize): f32 {
  const bits = 2 * <i32>sizeof<B>()
  const blocks = (group * bits) >> 7 // of sixteen bytes in a group
  const groups = cols / group
  let x = record
  let acc = f32x4.splat(0)
  for (let g = 0; g < groups; g++) {
    let sum0 = f32x4.splat(0)
    let sum1 = f32x4.splat(0)
    for (let block = 0; block < blocks; block++) {
      const v = v128.load(weight)
      for (let k = 0; k < 32 / bits; k += 2) {
        sum0 = madd(element<B>(v, k), v128.load(x + (<usize>k << 4)), sum0)
        sum1 = madd(element<B>(v, k + 1), v128.load(x + (<usize>k << 4), 16), sum1)
      }
      weight += 16
      x += <usize>(512 / bits)
    }
    acc = madd(f32x4.add(sum0, sum1), f32x4.splat(scaleAt<S>(scales, g)), acc)
  }
  return sumLanes(acc)
}

/** 2 bits in groups of 32: sixteen bytes hold two groups. */
function rowDot2x32<S>(weight: usize, scales: usize, cols: i32, record: usize): f32 {
  const groups = cols >> 5
  let x = record
  let acc = f32x4.splat(0)
  for (let g = 0; g < groups; g += 2) {
    const paired = g + 1 < groups
    const v = paired ? v128.load(weight) : v128.load64_zero(weight)
    let sum0 = f32x4.splat(0)
    let sum1 = f32x4.splat(0)
    for (let k = 0; k < 16; k += 2) {
      sum0 = madd(element<u8>(v, k), v128.load(x + (<usize>k << 4)), sum0)
      sum1 = madd(element<u8>(v, k + 1), v128.load(x + (<usize>k << 4), 16), sum1)
    }
    const first = scaleAt<S>(scales, g)
    const second: f32 = paired ? scaleAt<S>(scales, g + 1) : 0
    acc = madd(f32x4.add(sum0, sum1), f32x4(first, first, second, second), acc)
    weight += 16
    x += 256
  }
  return sumLanes(acc)
}

/** Element k of four words as floats times 2^(bits · k); the last one as it is. */
// @ts-ignore: decorator
@inline
function element<B>(v: v128, k: i32): v128 {
  const bits = 2 * <i32>sizeof<B>()
  if (k == 32 / bits - 1) return f32x4.convert_i32x4_s(i32x4.shr_u(v, 32 - bits))
  return f32x4.convert_i32x4_s(v128.and(v, i32x4.splat(((1 << bits) - 1) << (bits * k))))
}

// @ts-ignore: decorator
@inline
function scaleAt<S>(scales: usize, g: i32): f32 {
  const raw = load<u16>(scales + (<usize>g << 1))
  if (isSigned<S>()) return f32x4.extract_lane(halfToFloat4(i32x4.splat(raw)), 0)
  return reinterpret<f32>(<u32>raw << 16)
}

/** Σ over groups of bias · Σx. */
function rowBias<S>(biases: usize, group: i32, cols: i32, record: usize): f32 {
  const half = isSigned<S>()
  let sums = record + exactSums(cols)
  let acc = f32x4.splat(0)
  const groups = cols / group
  for (let g = groups >> 2; g > 0; g--) {
    acc = madd(loadFloats4(biases, half), v128.load(sums), acc)
    biases += 8
    sums += 16
  }
  if (groups & 3) acc = madd(loadFloatsTail(biases, groups & 3, half), v128.load(sums), acc)
  return sumLanes(acc)
}
