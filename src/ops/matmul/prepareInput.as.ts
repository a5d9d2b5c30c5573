// Turns input vectors into the form that quantized matrix products take: in the order in which
// weights come out of their packed words, with what a group needs once per vector (its scale, its
// sum). Layouts of records: layout.as.ts; for weights in blocks: blocks.as.ts.
import { kept } from '../assembly/simd.as'
import { isPaired, PAIR_BYTES, sumsOffset, unitColumns, unitStride } from './layout.as'
import { recordUnit, UNIT } from './blocks.as'

export function prepareFast(
  out: usize, outStride: usize, x: usize, xStride: usize,
  cols: i32, bits: i32, group: i32, tokenBegin: i32, tokenEnd: i32,
): void {
  const columns = unitColumns(bits, group)
  const stride = unitStride(bits, group)
  const groups = cols / group
  for (let t = tokenBegin; t < tokenEnd; t++) {
    const record = out + <usize>t * outStride
    const sums = record + sumsOffset(cols, bits, group)
    for (let g = 0; g < groups; g++) {
      const begin = x + <usize>t * xStride + ((<usize>g * group) << 2)
      const high = maximum(begin, group)
      const inverse: f32 = high > 0 ? 127 / high : 0
      const scale = high * <f32>(1.0 / 127.0)
      let sum = 0
      if (group < columns) {
        // Two groups in a unit, and two lanes of scale for each.
        const unit = record + <usize>(g >> 1) * stride
        const half = <usize>(g & 1)
        sum = quantize(unit + (half << 5), begin, group, inverse)
        store<f32>(unit + columns + (half << 3), scale)
        store<f32>(unit + columns + (half << 3), scale, 4)
      } else if (isPaired(bits, group)) {
        // The scale of a unit in two lanes beside that of its neighbour.
        for (let u = g * (group >> 6), last = u + (group >> 6); u < last; u++) {
          const pair = record + <usize>(u >> 1) * PAIR_BYTES
          const half = <usize>(u & 1)
          sum += quantize(pair + (half << 6), x + <usize>t * xStride + (<usize>u << 8), 64, inverse)
          store<f32>(pair + (half << 3), scale, 128)
          store<f32>(pair + (half << 3), scale, 132)
        }
      } else {
        const units = group / columns
        for (let u = 0; u < units; u++) {
          const unit = record + <usize>(g * units + u) * stride
          sum += quantize(unit, begin + (<usize>(u * columns) << 2), columns, inverse)
          v128.store(unit + columns, f32x4.splat(scale))
        }
      }
      store<f32>(sums + (<usize>g << 2), scale * <f32>sum)
    }
    for (let g = groups; g & 3; g++) store<f32>(sums + (<usize>g << 2), 0)
    if (group < columns && groups & 1) {
      const rest = sums - stride
      v128.store(rest, i32x4.splat(0), 32)
      v128.store(rest, i32x4.splat(0), 48)
      store<u64>(rest, 0, 72)
    }
    if (isPaired(bits, group)) {
      if (cols & 64) store<u64>(sums - 8, 0)
      for (let pair = record; pair < sums; pair += PAIR_BYTES) {
        for (let at = pair; at < pair + 128; at += bits == 2 ? 64 : 32) {
          if (bits == 2) permute2(at)
          else permute4(at)
        }
      }
      continue
    }
    for (let unit = record; unit < sums; unit += stride) {
      if (bits == 2) permute2(unit)
      else if (bits == 4) permute4(unit)
    }
  }
}

/** max |x|, as integers, which order positive floats and put NaN above all. */
// @ts-ignore: decorator
@inline
export function maximum(x: usize, count: i32): f32 {
  const magnitude = kept(i32x4.splat(0x7fffffff))
  let top = i32x4.splat(0)
  const end = x + (<usize>count << 2)
  do {
    top = i32x4.max_s(top, v128.and(v128.load(x), magnitude))
    top = i32x4.max_s(top, v128.and(v128.load(x, 16), magnitude))
    x += 32
  } while (x < end)
  top = i32x4.max_s(top, v128.shuffle<i32>(top, top, 2, 3, 0, 1))
  top = i32x4.max_s(top, v128.shuffle<i32>(top, top, 1, 0, 3, 2))
  return f32x4.extract_lane(top, 0)
}

/** int8 in natural order, half to even; returns their sum. */
// @ts-ignore: decorator
@inline
export function quantize(to: usize, x: usize, count: i32, inverse: f32): i32 {
  const factor = f32x4.splat(inverse)
  const magic = kept(f32x4.splat(12582912)) // 1.5 · 2^23: adding it rounds, and leaves the integer in the low bits
  const magicBits = kept(i32x4.splat(0x4b400000))
  let sum = i32x4.splat(0)
  const ones = kept(i16x8.splat(1))
  const end = to + count
  do {
    const a = i32x4.sub(f32x4.add(f32x4.mul(v128.load(x), factor), magic), magicBits)
    const b = i32x4.sub(f32x4.add(f32x4.mul(v128.load(x, 16), factor), magic), magicBits)
    const c = i32x4.sub(f32x4.add(f32x4.mul(v128.load(x, 32), factor), magic), magicBits)
    const d = i32x4.sub(f32x4.add(f32x4.mul(v128.load(x, 48), factor), magic), magicBits)
    const low = i16x8.narrow_i32x4_s(a, b)
    const high = i16x8.narrow_i32x4_s(c, d)
    sum = i32x4.add(sum, i32x4.dot_i16x8_s(i16x8.add(low, high), ones))
    v128.store(to, i8x16.narrow_i16x8_s(low, high))
    x += 64
    to += 16
  } while (to < end)
  return i32x4.extract_lane(sum, 0) + i32x4.extract_lane(sum, 1) + i32x4.extract_lane(sum, 2) + i32x4.extract_lane(sum, 3)
}

// @ts-ignore: decorator
@inline
function evens(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
}

// @ts-ignore: decorator
@inline
function odds(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
}

/** 32 bytes: those that meet low nibbles, then those that meet high nibbles. */
// @ts-ignore: decorator
@inline
export function permute4(at: usize): void {
  const a = v128.load(at)
  const b = v128.load(at, 16)
  v128.store(at, evens(a, b))
  v128.store(at, odds(a, b), 16)
}

/** 64 bytes: those that meet bits 0–1 of the sixteen bytes, then 2–3, 4–5, 6–7. */
// @ts-ignore: decorator
@inline
export function permute2(at: usize): void {
  const a = v128.load(at)
  const b = v128.load(at, 16)
  const c = v128.load(at, 32)
  const d = v128.load(at, 48)
  const even0 = evens(a, b)
  const even1 = evens(c, d)
  const odd0 = odds(a, b)
  const odd1 = odds(c, d)
  v128.store(at, evens(even0, even1))
  v128.store(at, evens(odd0, odd1), 16)
  v128.store(at, odds(even0, even1), 32)
  v128.store(at, odds(odd0, odd1), 48)
}

/** Blocks of four packed words: element 0 of each word, element 1 of each, … */
export function prepareExact(
  out: usize, outStride: usize, x: usize, xStride: usize,
  cols: i32, bits: i32, group: i32, tokenBegin: i32, tokenEnd: i32,
): void {
  const perWord = 32 / bits
  const padded = (cols + 63) & ~63
  for (let t = tokenBegin; t < tokenEnd; t++) {
    const row = x + <usize>t * xStride
    let to = out + <usize>t * outStride
    for (let block = 0; block < padded; block += perWord << 2) {
      for (let k = 0; k < perWord; k++) {
        for (let word = 0; word < 4; word++) {
          const column = block + word * perWord + k
          store<f32>(to, column < cols ? load<f32>(row + (<usize>column << 2)) : 0)
          to += 4
        }
      }
    }
  }
}

/** Records for weights in blocks: int8 with a scale for each group of the weights. */
export function prepareBlocks(
  out: usize, outStride: usize, x: usize, xStride: usize,
  cols: i32, bits: i32, group: i32, factor: f32, isLanes: bool, tokenBegin: i32, tokenEnd: i32,
): void {
  const groups = UNIT / group
  for (let t = tokenBegin; t < tokenEnd; t++) {
    let unit = out + <usize>t * outStride
    const row = x + <usize>t * xStride
    for (let column = 0; column < cols; column += UNIT) {
      for (let g = 0; g < groups; g++) {
        const to = unit + <usize>(g * group)
        const floats = unit + <usize>UNIT + (<usize>g << 2)
        const from = column + g * group
        if (from >= cols) {
          memory.fill(to, 0, <usize>group)
          store<f32>(floats, 0)
          store<f32>(floats + (<usize>groups << 2), 0)
          continue
        }
        const begin = row + (<usize>from << 2)
        const high = maximum(begin, group)
        const inverse: f32 = high > 0 ? 127 / high : 0
        const scale = high * <f32>(1.0 / 127.0)
        const sum = quantize(to, begin, group, inverse)
        store<f32>(floats, scale)
        store<f32>(floats + (<usize>groups << 2), factor * (scale * <f32>sum))
      }
      if (bits == 4) for (let at = unit; at < unit + <usize>UNIT; at += 32) permute4(at)
      if (isLanes) for (let g = 0; g < groups; g++) storeLanes(unit + <usize>(g * group), group, unit + <usize>UNIT + (<usize>(groups + g) << 2), factor)
      if (bits == 2) for (let at = unit; at < unit + <usize>UNIT; at += 64) permute2(at)
      unit += recordUnit(group)
    }
  }
}

/**
 * The sums of a group in the two lanes of 16 bits in which products of its codes are added up (matmulNibbles.as.ts, matmulBytes.as.ts): of every
 * first and second byte, and of every third and fourth.
 */
// @ts-ignore: decorator
@inline
function storeLanes(bytes: usize, group: i32, to: usize, factor: f32): void {
  let all = i16x8.extadd_pairwise_i8x16_s(v128.load(bytes))
  if (group == 32) all = i16x8.add(all, i16x8.extadd_pairwise_i8x16_s(v128.load(bytes, 16)))
  const half = i16x8.add(all, v128.shuffle<i64>(all, all, 1, 0))
  const lanes = i16x8.add(half, v128.shuffle<i32>(half, half, 1, 0, 3, 2))
  v128.store32_lane(to, i16x8.mul(lanes, i16x8.splat(<i16>factor)), 0)
}
