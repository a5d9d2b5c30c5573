// Quantized weights × int8 activations. Where a unit (layout.as.ts) is 64 columns of one group, matmulPaired.as.ts does it; here
// are the others: 8 bits, and groups of 32. The sums of a unit are four exact integers in a fixed pattern; each is scaled
// and added to its lane of one float accumulator, units ascending, then the biases, group g in lane g mod 4. That is the
// order of every output, whatever the number of tokens.
//
// One token: a row at a time, because one stream from memory is faster than several. Two to four: the same, with a unit
// unpacked once for all of them and their accumulators in registers. More: a unit of two rows is unpacked once and meets
// a tile of tokens, whose accumulators are in scratch.
//
// Written for V8's optimizing compiler: a loop's body is one unit, because all loads of a block are scheduled first and
// spilled when registers run out; hot loops test at their end, because only then are constants and unpacked weights kept
// out of them. In `rowFew` each token is a block of its own, which keeps the compiler from loading all at once: the first
// ends with a store, which also has the weights unpacked before the branches and not inside each of them.
//
// Type parameters carry constants, so that each layout is a function of its own: bits = 2 · sizeof<B> (u8, u16, u32: 2,
// 4, 8), group = 32 · sizeof<G> (u8, u16, u32: 32, 64, 128), S signed: F16 scales, else BF16.
import { rowsPaired } from './matmulPaired.as'
import { dotBytes, dotFour, dotWords, halfToFloat4, loadFloats4, loadFloatsTail, madd, sumLanes } from '../assembly/simd.as'
import { kept } from '../assembly/simd.as'
import { isPaired, storeAddresses, sumsOffset, TILE_ACCUMULATORS, TILE_ADDRESSES, TILE_RECORDS, TOKEN_TILE, unitColumns, unitStride } from './layout.as'

export function matmulFast(
  out: usize, outStride: usize, outIndex: usize,
  weight: usize, scales: usize, biases: usize, scaleType: i32, bits: i32, group: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, act: usize, actStride: usize, actIndex: usize, tokens: i32, scratch: usize,
): void {
  for (let first = 0; first < tokens; first += TOKEN_TILE) {
    const count = min(TOKEN_TILE, tokens - first)
    storeAddresses(out, outStride, outIndex, act, actStride, actIndex, first, count, scratch)
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
  if (group == 64) rows<B, u16, S>(weight, scales, biases, cols, rowBegin, rowEnd, tokens, scratch)
  else if (group == 128) rows<B, u32, S>(weight, scales, biases, cols, rowBegin, rowEnd, tokens, scratch)
  else rows<B, u8, S>(weight, scales, biases, cols, rowBegin, rowEnd, tokens, scratch)
}

function rows<B, G, S>(
  weight: usize, scales: usize, biases: usize, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  if (isPaired(<i32>(2 * sizeof<B>()), <i32>(32 * sizeof<G>()))) {
    rowsPaired<B, G, S>(weight, scales, biases, cols, rowBegin, rowEnd, tokens, scratch)
  } else {
    rowsSingle<B, G, S>(weight, scales, biases, cols, rowBegin, rowEnd, tokens, scratch)
  }
}

function rowsSingle<B, G, S>(
  weight: usize, scales: usize, biases: usize, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  const rowBytes = (<usize>cols * (2 * sizeof<B>())) >> 3
  const scaleBytes = (<usize>cols / (32 * sizeof<G>())) << 1
  const mask = kept(i8x16.splat(sizeof<B>() == 1 ? 3 : 15))
  const ones = kept(i16x8.splat(1))
  const begin = <usize>rowBegin
  const end = <usize>rowEnd
  if (tokens == 1) {
    const record = <usize>load<u32>(scratch)
    const out = <usize>load<u32>(scratch, TILE_ADDRESSES)
    for (let row = begin; row < end; row++) {
      const at = row * scaleBytes
      const sum = rowOne<B, G, S>(weight + row * rowBytes, scales + at, biases + at, cols, record, mask, ones)
      store<f32>(out + (row << 2), sum)
    }
    return
  }
  if (tokens <= 4) {
    interleave(cols, <i32>(2 * sizeof<B>()), <i32>(32 * sizeof<G>()), tokens, scratch)
    for (let row = begin; row < end; row++) {
      const at = row * scaleBytes
      rowFew<B, G, S>(weight + row * rowBytes, scales + at, biases + at, cols, tokens, row << 2, scratch, mask, ones)
    }
    return
  }
  // Rows of a pair are far from each other: to the memory's prefetchers neighbours in a page look like one odd stream.
  // The last row of an odd number is taken twice.
  const half = (end - begin + 1) >> 1
  for (let row = begin, middle = begin + half; row < middle; row++) {
    const next = min(row + half, end - 1)
    const at = row * scaleBytes
    const step = (next - row) * scaleBytes
    rowsMany<B, G, S>(
      weight + row * rowBytes, (next - row) * rowBytes, scales + at, biases + at, step, cols, tokens, scratch, mask, ones,
    )
    let accumulator = scratch + TILE_ACCUMULATORS
    for (let address = scratch, last = scratch + (<usize>tokens << 2); address < last; address += 4) {
      const out = <usize>load<u32>(address, TILE_ADDRESSES)
      store<f32>(out + (row << 2), sumLanes(v128.load(accumulator)))
      store<f32>(out + (next << 2), sumLanes(v128.load(accumulator, 16)))
      accumulator += 32
    }
  }
}

function rowOne<B, G, S>(w: usize, s: usize, b: usize, cols: i32, record: usize, mask: v128, ones: v128): f32 {
  const bits = <i32>(2 * sizeof<B>())
  const group = <i32>(32 * sizeof<G>())
  const columns = unitColumns(bits, group)
  const perGroup = max(1, group / columns)
  const unitBytes = <usize>((columns * bits) >> 3)
  const end = record + sumsOffset(cols, bits, group)
  let x = record
  let acc = f32x4.splat(0)
  do {
    if (sizeof<B>() == 1 && sizeof<G>() == 1) {
      const paired = x + 160 <= end || !(cols & 32)
      const sums = unitSums<B, G>(paired ? v128.load(w) : v128.load64_zero(w), mask, mask, ones, x)
      acc = accumulate(acc, sums, pairScale<S>(s, paired), v128.load(x + columns))
      s += 4
    } else {
      const scale = splatScale<S>(s)
      s += 2
      if (perGroup > 1) {
        const groupEnd = x + (perGroup - 1) * (columns + 16)
        do {
          const sums = unitSums<B, G>(v128.load(w), unitBytes > 16 ? v128.load(w, 16) : mask, mask, ones, x)
          acc = accumulate(acc, sums, scale, v128.load(x + columns))
          w += unitBytes
          x += columns + 16
        } while (x < groupEnd)
      }
      const sums = unitSums<B, G>(v128.load(w), unitBytes > 16 ? v128.load(w, 16) : mask, mask, ones, x)
      acc = accumulate(acc, sums, scale, v128.load(x + columns))
    }
    w += unitBytes
    x += columns + 16
  } while (x < end)
  const half = isSigned<S>()
  const groups = cols / group
  for (let g = groups >> 2; g > 0; g--) {
    acc = madd(loadFloats4(b, half), v128.load(x), acc)
    b += 8
    x += 16
  }
  if (groups & 3) acc = madd(loadFloatsTail(b, groups & 3, half), v128.load(x), acc)
  return sumLanes(acc)
}

/** One row for two to four records (in the tile of `interleave`), whose accumulators stay in registers. */
function rowFew<B, G, S>(
  w: usize, s: usize, b: usize, cols: i32, tokens: i32, column: usize, scratch: usize, mask: v128, ones: v128,
): void {
  const bits = <i32>(2 * sizeof<B>())
  const group = <i32>(32 * sizeof<G>())
  const columns = unitColumns(bits, group)
  const perGroup = max(1, group / columns)
  const unitBytes = <usize>((columns * bits) >> 3)
  let x = scratch + TILE_RECORDS
  const end = x + 4 * sumsOffset(cols, bits, group)
  let acc0 = f32x4.splat(0)
  let acc1 = f32x4.splat(0)
  let acc2 = f32x4.splat(0)
  let acc3 = f32x4.splat(0)
  let scale = f32x4.splat(0)
  let left = 0
  do {
    let a: v128
    if (sizeof<B>() == 1 && sizeof<G>() == 1) {
      const paired = x + 640 <= end || !(cols & 32)
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
    acc0 = tileUnit<B, G, u8>(acc0, q0, q1, q2, q3, x, scale, ones)
    v128.store(scratch, acc0, TILE_ACCUMULATORS) // read by nobody
    if (tokens > 1) acc1 = tileUnit<B, G, u16>(acc1, q0, q1, q2, q3, x, scale, ones)
    if (tokens > 2) acc2 = tileUnit<B, G, u32>(acc2, q0, q1, q2, q3, x, scale, ones)
    if (tokens > 3) acc3 = tileUnit<B, G, u64>(acc3, q0, q1, q2, q3, x, scale, ones)
    w += unitBytes
    x += 4 * (columns + 16)
  } while (x < end)
  const half = isSigned<S>()
  for (let left = cols / group; left > 0; left -= 4) {
    const bias = left < 4 ? loadFloatsTail(b, left, half) : loadFloats4(b, half)
    acc0 = madd(bias, v128.load(x), acc0)
    acc1 = madd(bias, v128.load(x, 16), acc1)
    acc2 = madd(bias, v128.load(x, 32), acc2)
    acc3 = madd(bias, v128.load(x, 48), acc3)
    b += 8
    x += 64
  }
  store<f32>(<usize>load<u32>(scratch, TILE_ADDRESSES) + column, sumLanes(acc0))
  store<f32>(<usize>load<u32>(scratch, TILE_ADDRESSES + 4) + column, sumLanes(acc1))
  if (tokens > 2) store<f32>(<usize>load<u32>(scratch, TILE_ADDRESSES + 8) + column, sumLanes(acc2))
  if (tokens > 3) store<f32>(<usize>load<u32>(scratch, TILE_ADDRESSES + 12) + column, sumLanes(acc3))
}

/** What one token of the tile, T of u8, u16, u32 or u64, adds to its accumulator. Offsets are constants of instructions. */
// @ts-ignore: decorator
@inline
function tileUnit<B, G, T>(
  acc: v128, q0: v128, q1: v128, q2: v128, q3: v128, x: usize, scale: v128, ones: v128,
): v128 {
  if (unitColumns(<i32>(2 * sizeof<B>()), <i32>(32 * sizeof<G>())) == 64) {
    const x0 = v128.load(x, (sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) * 80)
    const x1 = v128.load(x, (sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) * 80 + 16)
    const x2 = v128.load(x, (sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) * 80 + 32)
    const x3 = v128.load(x, (sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) * 80 + 48)
    const xScale = v128.load(x, (sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) * 80 + 64)
    return accumulate(acc, integerSums<B, G>(q0, q1, q2, q3, x0, x1, x2, x3, ones), scale, xScale)
  }
  const x0 = v128.load(x, (sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) * 48)
  const x1 = v128.load(x, (sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) * 48 + 16)
  const xScale = v128.load(x, (sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) * 48 + 32)
  return accumulate(acc, integerSums<B, G>(q0, q1, q2, q3, x0, x1, x0, x0, ones), scale, xScale)
}

/** Up to four records, whose addresses are in scratch, unit by unit beside each other. */
function interleave(cols: i32, bits: i32, group: i32, tokens: i32, scratch: usize): void {
  const stride = unitStride(bits, group)
  const sums = sumsOffset(cols, bits, group)
  const tail = <usize>((cols / group + 3) >> 2) << 4
  for (let t = 0; t < tokens; t++) {
    let from = <usize>load<u32>(scratch + (<usize>t << 2))
    let to = scratch + TILE_RECORDS + <usize>t * stride
    for (const end = from + sums; from < end; from += stride) {
      // Not memory.copy, which is a call out of WASM.
      for (let i: usize = 0; i < stride; i += 16) v128.store(to + i, v128.load(from + i))
      to += 4 * stride
    }
    to = scratch + TILE_RECORDS + 4 * sums + (<usize>t << 4)
    for (const end = from + tail; from < end; from += 16) {
      v128.store(to, v128.load(from))
      to += 64
    }
  }
  // Sums of absent tokens are multiplied too; what scratch held before might be subnormal, which is slow.
  for (let t = tokens; t < 4; t++) {
    let to = scratch + TILE_RECORDS + 4 * sums + (<usize>t << 4)
    for (const end = to + 4 * tail; to < end; to += 64) v128.store(to, i32x4.splat(0))
  }
}

/** The accumulators of two rows (w, s and b, and so many bytes further on) for a tile of records, into scratch. */
function rowsMany<B, G, S>(
  w: usize, nextRow: usize, s: usize, b: usize, nextScale: usize, cols: i32, tokens: i32, scratch: usize, mask: v128, ones: v128,
): void {
  const bits = <i32>(2 * sizeof<B>())
  const group = <i32>(32 * sizeof<G>())
  const columns = unitColumns(bits, group)
  const perGroup = max(1, group / columns)
  const unitBytes = <usize>((columns * bits) >> 3)
  const accumulators = scratch + TILE_ACCUMULATORS
  const tileEnd = scratch + (<usize>tokens << 2)
  memory.fill(accumulators, 0, <usize>tokens << 5)
  const end = sumsOffset(cols, bits, group)
  let x: usize = 0
  let left = 0
  let scale0 = f32x4.splat(0)
  let scale1 = f32x4.splat(0)
  do {
    let a0: v128
    let a1: v128
    if (sizeof<B>() == 1 && sizeof<G>() == 1) {
      const paired = x + 160 <= end || !(cols & 32)
      scale0 = pairScale<S>(s, paired)
      scale1 = pairScale<S>(s + nextScale, paired)
      a0 = paired ? v128.load(w) : v128.load64_zero(w)
      a1 = paired ? v128.load(w + nextRow) : v128.load64_zero(w + nextRow)
      s += 4
    } else {
      if (perGroup == 1 || left == 0) {
        scale0 = splatScale<S>(s)
        scale1 = splatScale<S>(s + nextScale)
        s += 2
        left = perGroup
      }
      left--
      a0 = v128.load(w)
      a1 = v128.load(w + nextRow)
    }
    const b0 = unitBytes > 16 ? v128.load(w, 16) : a0
    const b1 = unitBytes > 16 ? v128.load(w + nextRow, 16) : a1
    const q00 = v128.and(a0, mask)
    const q01 = v128.and(i16x8.shr_u(a0, bits == 2 ? 2 : 4), mask)
    const q02 = bits == 2 ? v128.and(i16x8.shr_u(a0, 4), mask) : v128.and(b0, mask)
    const q03 = bits == 2 ? v128.and(i16x8.shr_u(a0, 6), mask) : v128.and(i16x8.shr_u(b0, 4), mask)
    const q10 = v128.and(a1, mask)
    const q11 = v128.and(i16x8.shr_u(a1, bits == 2 ? 2 : 4), mask)
    const q12 = bits == 2 ? v128.and(i16x8.shr_u(a1, 4), mask) : v128.and(b1, mask)
    const q13 = bits == 2 ? v128.and(i16x8.shr_u(a1, 6), mask) : v128.and(i16x8.shr_u(b1, 4), mask)
    let accumulator = accumulators
    let address = scratch
    do {
      const record = <usize>load<u32>(address) + x
      const x0 = v128.load(record)
      const x1 = v128.load(record, 16)
      const x2 = columns == 64 ? v128.load(record, 32) : x0
      const x3 = columns == 64 ? v128.load(record, 48) : x0
      const xScale = v128.load(record + columns)
      const sums0 = integerSums<B, G>(q00, q01, q02, q03, x0, x1, x2, x3, ones)
      const sums1 = integerSums<B, G>(q10, q11, q12, q13, x0, x1, x2, x3, ones)
      v128.store(accumulator, accumulate(v128.load(accumulator), sums0, scale0, xScale))
      v128.store(accumulator, accumulate(v128.load(accumulator, 16), sums1, scale1, xScale), 16)
      accumulator += 32
      address += 4
    } while (address < tileEnd)
    w += unitBytes
    x += columns + 16
  } while (x < end)
  const half = isSigned<S>()
  for (let left = cols / group; left > 0; left -= 4) {
    const bias0 = left < 4 ? loadFloatsTail(b, left, half) : loadFloats4(b, half)
    const bias1 = left < 4 ? loadFloatsTail(b + nextScale, left, half) : loadFloats4(b + nextScale, half)
    let accumulator = accumulators
    let address = scratch
    do {
      const sums = v128.load(<usize>load<u32>(address) + x)
      v128.store(accumulator, madd(bias0, sums, v128.load(accumulator)))
      v128.store(accumulator, madd(bias1, sums, v128.load(accumulator, 16)), 16)
      accumulator += 32
      address += 4
    } while (address < tileEnd)
    b += 8
    x += 16
  }
}

// @ts-ignore: decorator
@inline
function accumulate(acc: v128, sums: v128, scale: v128, xScale: v128): v128 {
  return madd(f32x4.convert_i32x4_s(sums), f32x4.mul(scale, xScale), acc)
}

/** The four integer sums of a unit whose weights are the vector a, or a and b, and whose activations are at x. */
// @ts-ignore: decorator
@inline
function unitSums<B, G>(a: v128, b: v128, mask: v128, ones: v128, x: usize): v128 {
  const columns = unitColumns(<i32>(2 * sizeof<B>()), <i32>(32 * sizeof<G>()))
  const x0 = v128.load(x)
  const x1 = v128.load(x, 16)
  const x2 = columns == 64 ? v128.load(x, 32) : x0
  const x3 = columns == 64 ? v128.load(x, 48) : x0
  const q0 = v128.and(a, mask)
  if (sizeof<B>() == 1) {
    const q1 = v128.and(i16x8.shr_u(a, 2), mask)
    const q2 = v128.and(i16x8.shr_u(a, 4), mask)
    return integerSums<B, G>(q0, q1, q2, v128.and(i16x8.shr_u(a, 6), mask), x0, x1, x2, x3, ones)
  }
  const q1 = v128.and(i16x8.shr_u(a, 4), mask)
  return integerSums<B, G>(q0, q1, v128.and(b, mask), v128.and(i16x8.shr_u(b, 4), mask), x0, x1, x2, x3, ones)
}

/** Lane l: the bytes 4l to 4l + 3 of all vectors. A 16-bit lane holds at most 8 · 15 · 127 = 15240 before that. */
// @ts-ignore: decorator
@inline
function integerSums<B, G>(
  q0: v128, q1: v128, q2: v128, q3: v128, x0: v128, x1: v128, x2: v128, x3: v128, ones: v128,
): v128 {
  if (DOT_PRODUCTS) {
    if (sizeof<B>() == 4) return i32x4.add(twoDots(x0, q0, x1, q2), i32x4.shl(twoDots(x0, q1, x1, q3), 4))
    if (sizeof<B>() == 2 && sizeof<G>() == 1) return twoDots(x0, q0, x1, q1)
    return dotFour(x0, x1, x2, x3, q0, q1, q2, q3, i32x4.splat(0))
  }
  if (sizeof<B>() == 4) {
    // 8 bits as two nibbles that meet the same activations: low + 16 · high.
    return i32x4.add(pairSums(x0, q0, x1, q2, ones), pairSums(x0, q1, x1, q3, i16x8.shl(ones, 4)))
  }
  if (sizeof<B>() == 2 && sizeof<G>() == 1) return pairSums(x0, q0, x1, q1, ones)
  if (ASC_FEATURE_RELAXED_SIMD) {
    const sum = i16x8.add(i16x8.add(dotBytes(x0, q0), dotBytes(x1, q1)), dotBytes(x2, q2))
    return i32x4.dot_i16x8_s(i16x8.add(sum, dotBytes(x3, q3)), ones)
  }
  let low = i16x8.add(i16x8.extmul_low_i8x16_s(x0, q0), i16x8.extmul_low_i8x16_s(x1, q1))
  let high = i16x8.add(i16x8.extmul_high_i8x16_s(x0, q0), i16x8.extmul_high_i8x16_s(x1, q1))
  low = i16x8.add(i16x8.add(low, i16x8.extmul_low_i8x16_s(x2, q2)), i16x8.extmul_low_i8x16_s(x3, q3))
  high = i16x8.add(i16x8.add(high, i16x8.extmul_high_i8x16_s(x2, q2)), i16x8.extmul_high_i8x16_s(x3, q3))
  return fours(low, high, ones)
}

// @ts-ignore: decorator
@inline
function twoDots(x0: v128, q0: v128, x1: v128, q1: v128): v128 {
  return dotWords(x1, q1, dotWords(x0, q0, i32x4.splat(0)))
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
