// Quantized weights × int8 activations where a unit (layout.as.ts) is 64 columns of one group: 2 and 4 bits in groups of 64
// and 128. The sums of a unit are two exact integers of 32 columns each, in a fixed pattern, so that a vector holds those
// of two rows. They are scaled and added to float lanes: even units of a row to one pair of lanes, odd ones to another,
// ascending; these four lanes take the biases, group g in lane g mod 4. That is the order of every output, whatever the
// number of tokens.
//
// Written for few instructions, which is what binds it: two rows share the loads of activations and half of the scaling.
// And for V8's optimizing compiler: accumulators of several tokens are in scratch, because registers do not suffice. All
// loads before a store are scheduled first and spilled when registers run out: so each token ends with a store, and with
// one token each unit. Hot loops test at their end, because only then are constants kept out of them.
//
// Type parameters as in matmulFast.as.ts.
import { dotBytes, dotFour, halfToFloat4, loadFloats4, loadFloatsTail, madd, sumLanes, sumLanes4 } from '../assembly/simd.as'
import { kept } from '../assembly/simd.as'
import { PAIR_BYTES, pairedSums, TILE_ACCUMULATORS, TILE_ADDRESSES, TILE_RECORDS, TILE_UNIT } from './layout.as'

/** Bytes from the accumulators of a tile's four tokens to those of the next tile. */
// @ts-ignore: decorator
@inline
const NEXT_ACCUMULATORS: usize = 128

/** Rows [rowBegin, rowEnd) for records and outputs whose addresses are in scratch. */
export function rowsPaired<B, G, S>(
  weight: usize, scales: usize, biases: usize, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize,
): void {
  const rowBytes = (<usize>cols * (2 * sizeof<B>())) >> 3
  const scaleBytes = (<usize>cols / (32 * sizeof<G>())) << 1
  const mask = kept(i8x16.splat(sizeof<B>() == 1 ? 3 : 15))
  const begin = <usize>rowBegin
  const end = <usize>rowEnd
  // Rows of a pair are far from each other: to the memory's prefetchers neighbours in a page look like one odd stream.
  // The one in the middle of an odd number is taken twice.
  const half = (end - begin + 1) >> 1
  const next = end - begin - half
  if (half == 0) return
  const tile = scratch + TILE_RECORDS
  const nextTile = tileBytes(cols, <i32>(32 * sizeof<G>()))
  for (let first = 0; first < tokens; ) {
    // Two tiles of four share what is unpacked.
    const count = tokens - first >= 8 ? 8 : min(4, tokens - first)
    const addresses = scratch + (<usize>first << 2)
    first += count
    if (count == 1) {
      const at = begin * scaleBytes
      rowsOne<B, G, S>(
        weight + begin * rowBytes, next * rowBytes, scales + at, biases + at, next * scaleBytes, cols, half,
        addresses, begin << 2, next << 2, scratch, mask,
      )
      return
    }
    interleave(cols, <i32>(32 * sizeof<G>()), min(4, count), addresses, tile)
    if (count == 8) interleave(cols, <i32>(32 * sizeof<G>()), 4, addresses + 16, tile + nextTile)
    for (let row = begin, middle = begin + half; row < middle; row++) {
      const w = weight + row * rowBytes
      const w2 = w + next * rowBytes
      const s = scales + row * scaleBytes
      const b = biases + row * scaleBytes
      const step = next * scaleBytes
      if (count == 8) twoRows<B, G, S, f64>(w, w2, s, step, cols, nextTile, scratch, mask)
      else if (count == 4) twoRows<B, G, S, u64>(w, w2, s, step, cols, 0, scratch, mask)
      else if (count == 3) twoRows<B, G, S, u32>(w, w2, s, step, cols, 0, scratch, mask)
      else twoRows<B, G, S, u16>(w, w2, s, step, cols, 0, scratch, mask)
      finish<G, S>(b, b + step, cols, min(4, count), addresses, row << 2, (row + next) << 2, tile, scratch)
      if (count == 8) finish<G, S>(b, b + step, cols, 4, addresses + 16, row << 2, (row + next) << 2, tile + nextTile, scratch + NEXT_ACCUMULATORS)
    }
  }
}

/** So many rows, and as many that lie `nextRow`, `nextScale` and `nextColumn` bytes further on, for one token. */
function rowsOne<B, G, S>(
  w: usize, nextRow: usize, s: usize, b: usize, nextScale: usize, cols: i32, rows: usize,
  addresses: usize, column: usize, nextColumn: usize, scratch: usize, mask: v128,
): void {
  const record = <usize>load<u32>(addresses)
  const pairsEnd = record + (<usize>cols >> 7) * PAIR_BYTES
  const half = isSigned<S>()
  const groups = cols / <i32>(32 * sizeof<G>())
  let w2 = w + nextRow
  let s2 = s + nextScale
  let b2 = b + nextScale
  let out = <usize>load<u32>(addresses, TILE_ADDRESSES) + column
  const end = out + (rows << 2)
  do {
    let x = record
    let even = f32x4.splat(0)
    let odd = f32x4.splat(0)
    if (x < pairsEnd) {
      do {
        even = accumulate(even, unitSums<B, u8>(w, w2, x, mask), twoScales<S>(s, s2), v128.load64_splat(x, 128))
        v128.store(scratch, even, TILE_ACCUMULATORS) // read by nobody
        if (sizeof<G>() == 2) {
          s += 2
          s2 += 2
        }
        odd = accumulate(odd, unitSums<B, u16>(w, w2, x, mask), twoScales<S>(s, s2), v128.load64_splat(x, 136))
        s += 2
        s2 += 2
        w += 32 * sizeof<B>()
        w2 += 32 * sizeof<B>()
        x += PAIR_BYTES
      } while (x < pairsEnd)
    }
    if (cols & 64) {
      even = accumulate(even, unitSums<B, u8>(w, w2, x, mask), twoScales<S>(s, s2), v128.load64_splat(x, 128))
      s += 2
      s2 += 2
      w += 16 * sizeof<B>()
      w2 += 16 * sizeof<B>()
      x += PAIR_BYTES
    }
    let acc = v128.shuffle<i64>(even, odd, 0, 2)
    let acc2 = v128.shuffle<i64>(even, odd, 1, 3)
    const sumsEnd = x + (<usize>(groups >> 2) << 4)
    if (x < sumsEnd) {
      do {
        const sums = v128.load(x)
        acc = madd(loadFloats4(b, half), sums, acc)
        acc2 = madd(loadFloats4(b2, half), sums, acc2)
        b += 8
        b2 += 8
        x += 16
      } while (x < sumsEnd)
    }
    if (groups & 3) {
      const sums = v128.load(x)
      acc = madd(loadFloatsTail(b, groups & 3, half), sums, acc)
      acc2 = madd(loadFloatsTail(b2, groups & 3, half), sums, acc2)
      b += <usize>(groups & 3) << 1
      b2 += <usize>(groups & 3) << 1
    }
    store<f32>(out, sumLanes(acc))
    store<f32>(out + nextColumn, sumLanes(acc2))
    out += 4
  } while (out < end)
}

/**
 * The accumulators of two rows for the tile's N records (u16, u32, u64: 2, 3, 4; f64: 4, and 4 of the next tile), into scratch: even
 * units, odd units.
 */
function twoRows<B, G, S, N>(
  w: usize, w2: usize, s: usize, nextScale: usize, cols: i32, nextTile: usize, scratch: usize, mask: v128,
): void {
  let x = scratch + TILE_RECORDS
  const end = x + (<usize>cols >> 7) * (4 * TILE_UNIT * 2)
  zeroAccumulators(scratch)
  if (isFloat<N>()) zeroAccumulators(scratch + NEXT_ACCUMULATORS)
  let s2 = s + nextScale
  if (x < end) {
    do {
      twoUnits<B, S, N, u8>(w, w2, s, s2, x, nextTile, scratch, mask)
      if (sizeof<G>() == 2) {
        s += 2
        s2 += 2
      }
      twoUnits<B, S, N, u16>(w, w2, s, s2, x, nextTile, scratch, mask)
      w += 32 * sizeof<B>()
      w2 += 32 * sizeof<B>()
      s += 2
      s2 += 2
      x += 4 * TILE_UNIT * 2
    } while (x < end)
  }
  if (cols & 64) twoUnits<B, S, N, u8>(w, w2, s, s2, x, nextTile, scratch, mask)
}

function zeroAccumulators(scratch: usize): void {
  v128.store(scratch, i32x4.splat(0), TILE_ACCUMULATORS)
  v128.store(scratch, i32x4.splat(0), TILE_ACCUMULATORS + 16)
  v128.store(scratch, i32x4.splat(0), TILE_ACCUMULATORS + 32)
  v128.store(scratch, i32x4.splat(0), TILE_ACCUMULATORS + 48)
  v128.store(scratch, i32x4.splat(0), TILE_ACCUMULATORS + 64)
  v128.store(scratch, i32x4.splat(0), TILE_ACCUMULATORS + 80)
  v128.store(scratch, i32x4.splat(0), TILE_ACCUMULATORS + 96)
  v128.store(scratch, i32x4.splat(0), TILE_ACCUMULATORS + 112)
}

/** An even (U = u8) or odd (u16) unit of two rows for N tokens. */
// @ts-ignore: decorator
@inline
function twoUnits<B, S, N, U>(
  w: usize, w2: usize, s: usize, s2: usize, x: usize, nextTile: usize, scratch: usize, mask: v128,
): void {
  const scale = twoScales<S>(s, s2)
  const p0 = unpacked<B, U, u8>(w, mask)
  const p1 = unpacked<B, U, u16>(w, mask)
  const p2 = unpacked<B, U, u32>(w, mask)
  const p3 = unpacked<B, U, u64>(w, mask)
  const q0 = unpacked<B, U, u8>(w2, mask)
  const q1 = unpacked<B, U, u16>(w2, mask)
  const q2 = unpacked<B, U, u32>(w2, mask)
  const q3 = unpacked<B, U, u64>(w2, mask)
  oneToken<B, U, u8>(p0, p1, p2, p3, q0, q1, q2, q3, scale, x, scratch)
  oneToken<B, U, u16>(p0, p1, p2, p3, q0, q1, q2, q3, scale, x, scratch)
  if (sizeof<N>() > 2) oneToken<B, U, u32>(p0, p1, p2, p3, q0, q1, q2, q3, scale, x, scratch)
  if (sizeof<N>() > 4) oneToken<B, U, u64>(p0, p1, p2, p3, q0, q1, q2, q3, scale, x, scratch)
  if (isFloat<N>()) {
    const x2 = x + nextTile
    oneToken<B, U, u8>(p0, p1, p2, p3, q0, q1, q2, q3, scale, x2, scratch + NEXT_ACCUMULATORS)
    oneToken<B, U, u16>(p0, p1, p2, p3, q0, q1, q2, q3, scale, x2, scratch + NEXT_ACCUMULATORS)
    oneToken<B, U, u32>(p0, p1, p2, p3, q0, q1, q2, q3, scale, x2, scratch + NEXT_ACCUMULATORS)
    oneToken<B, U, u64>(p0, p1, p2, p3, q0, q1, q2, q3, scale, x2, scratch + NEXT_ACCUMULATORS)
  }
}

/** What the token T (u8, u16, u32, u64) adds to its accumulators. Offsets are constants of instructions. */
// @ts-ignore: decorator
@inline
function oneToken<B, U, T>(
  p0: v128, p1: v128, p2: v128, p3: v128, q0: v128, q1: v128, q2: v128, q3: v128, scale: v128, x: usize, scratch: usize,
): void {
  const x0 = v128.load(x, ((sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) + (sizeof<U>() - 1) * 4) * TILE_UNIT)
  const x1 = v128.load(x, ((sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) + (sizeof<U>() - 1) * 4) * TILE_UNIT + 16)
  const x2 = v128.load(x, ((sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) + (sizeof<U>() - 1) * 4) * TILE_UNIT + 32)
  const x3 = v128.load(x, ((sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) + (sizeof<U>() - 1) * 4) * TILE_UNIT + 48)
  const sums = merge(unitDot(p0, p1, p2, p3, x0, x1, x2, x3), unitDot(q0, q1, q2, q3, x0, x1, x2, x3))
  const xScale = v128.load(x, ((sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) + (sizeof<U>() - 1) * 4) * TILE_UNIT + 64)
  const acc = v128.load(scratch, (sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) * 32 + (sizeof<U>() - 1) * 16 + TILE_ACCUMULATORS)
  v128.store(
    scratch, accumulate(acc, sums, scale, xScale),
    (sizeof<T>() == 8 ? 3 : sizeof<T>() >> 1) * 32 + (sizeof<U>() - 1) * 16 + TILE_ACCUMULATORS,
  )
}

/** Adds the biases and writes the outputs of two rows, which go to columns (in bytes) `column` and `nextColumn`. */
function finish<G, S>(
  b: usize, b2: usize, cols: i32, tokens: i32, addresses: usize, column: usize, nextColumn: usize, tile: usize, scratch: usize,
): void {
  const even0 = v128.load(scratch, TILE_ACCUMULATORS)
  const odd0 = v128.load(scratch, TILE_ACCUMULATORS + 16)
  const even1 = v128.load(scratch, TILE_ACCUMULATORS + 32)
  const odd1 = v128.load(scratch, TILE_ACCUMULATORS + 48)
  const even2 = v128.load(scratch, TILE_ACCUMULATORS + 64)
  const odd2 = v128.load(scratch, TILE_ACCUMULATORS + 80)
  const even3 = v128.load(scratch, TILE_ACCUMULATORS + 96)
  const odd3 = v128.load(scratch, TILE_ACCUMULATORS + 112)
  let p0 = v128.shuffle<i64>(even0, odd0, 0, 2)
  let p1 = v128.shuffle<i64>(even1, odd1, 0, 2)
  let p2 = v128.shuffle<i64>(even2, odd2, 0, 2)
  let p3 = v128.shuffle<i64>(even3, odd3, 0, 2)
  let q0 = v128.shuffle<i64>(even0, odd0, 1, 3)
  let q1 = v128.shuffle<i64>(even1, odd1, 1, 3)
  let q2 = v128.shuffle<i64>(even2, odd2, 1, 3)
  let q3 = v128.shuffle<i64>(even3, odd3, 1, 3)
  const group = <i32>(32 * sizeof<G>())
  const half = isSigned<S>()
  let x = tile + tileSums(cols)
  let left = cols / group
  do {
    const bias = left < 4 ? loadFloatsTail(b, left, half) : loadFloats4(b, half)
    const bias2 = left < 4 ? loadFloatsTail(b2, left, half) : loadFloats4(b2, half)
    const x0 = v128.load(x)
    p0 = madd(bias, x0, p0)
    q0 = madd(bias2, x0, q0)
    const x1 = v128.load(x, 16)
    p1 = madd(bias, x1, p1)
    q1 = madd(bias2, x1, q1)
    const x2 = v128.load(x, 32)
    p2 = madd(bias, x2, p2)
    q2 = madd(bias2, x2, q2)
    const x3 = v128.load(x, 48)
    p3 = madd(bias, x3, p3)
    q3 = madd(bias2, x3, q3)
    b += 8
    b2 += 8
    x += 64
    left -= 4
  } while (left > 0)
  const p = sumLanes4(p0, p1, p2, p3)
  const q = sumLanes4(q0, q1, q2, q3)
  let out = <usize>load<u32>(addresses, TILE_ADDRESSES)
  v128.store32_lane(out + column, p, 0)
  v128.store32_lane(out + nextColumn, q, 0)
  if (tokens > 1) {
    out = <usize>load<u32>(addresses, TILE_ADDRESSES + 4)
    v128.store32_lane(out + column, p, 1)
    v128.store32_lane(out + nextColumn, q, 1)
  }
  if (tokens > 2) {
    out = <usize>load<u32>(addresses, TILE_ADDRESSES + 8)
    v128.store32_lane(out + column, p, 2)
    v128.store32_lane(out + nextColumn, q, 2)
  }
  if (tokens > 3) {
    out = <usize>load<u32>(addresses, TILE_ADDRESSES + 12)
    v128.store32_lane(out + column, p, 3)
    v128.store32_lane(out + nextColumn, q, 3)
  }
}

/** Up to four records, whose addresses are given, unit by unit beside each other, each scale in all lanes. */
function interleave(cols: i32, group: i32, tokens: i32, addresses: usize, tile: usize): void {
  const tail = <usize>((cols / group + 3) >> 2) << 4
  for (let t: usize = 0; t < 4; t++) {
    let to = tile + tileSums(cols) + (t << 4)
    if (t >= <usize>tokens) {
      // Sums of absent tokens are multiplied too; what scratch held before might be subnormal, which is slow.
      for (const end = to + 4 * tail; to < end; to += 64) v128.store(to, i32x4.splat(0))
      continue
    }
    let from = <usize>load<u32>(addresses + (t << 2))
    let at = tile + t * TILE_UNIT
    for (const end = from + pairedSums(cols); from < end; from += PAIR_BYTES) {
      for (let i: usize = 0; i < 64; i += 16) {
        v128.store(at + i, v128.load(from + i))
        v128.store(at + i, v128.load(from + i, 64), 4 * TILE_UNIT)
      }
      v128.store(at, v128.load64_splat(from, 128), 64)
      v128.store(at, v128.load64_splat(from, 136), 4 * TILE_UNIT + 64)
      at += 8 * TILE_UNIT
    }
    for (const end = from + tail; from < end; from += 16) {
      v128.store(to, v128.load(from))
      to += 64
    }
  }
}

/** Bytes of a tile of four records. */
// @ts-ignore: decorator
@inline
function tileBytes(cols: i32, group: i32): usize {
  return tileSums(cols) + (<usize>((cols / group + 3) >> 2) << 6)
}

/** Where the sums begin in a tile of four records. */
// @ts-ignore: decorator
@inline
function tileSums(cols: i32): usize {
  return <usize>((cols + 127) >> 7) * (8 * TILE_UNIT)
}

/** The vector V (u8, u16, u32, u64: 0 to 3) of the integer weights of a unit at w, or (U = u16) of the one after it. */
// @ts-ignore: decorator
@inline
function unpacked<B, U, V>(w: usize, mask: v128): v128 {
  if (sizeof<B>() == 1) {
    const packed = v128.load(w, (sizeof<U>() - 1) * 16)
    if (sizeof<V>() == 1) return v128.and(packed, mask)
    return v128.and(i16x8.shr_u(packed, sizeof<V>() == 2 ? 2 : sizeof<V>() == 4 ? 4 : 6), mask)
  }
  const packed = v128.load(w, (sizeof<U>() - 1) * 32 + (sizeof<V>() < 4 ? 0 : 16))
  if (sizeof<V>() == 1 || sizeof<V>() == 4) return v128.and(packed, mask)
  return v128.and(i16x8.shr_u(packed, 4), mask)
}

/** The first (U = u8) or second (u16) units at w and w2 with that of the pair at x. */
// @ts-ignore: decorator
@inline
function unitSums<B, U>(w: usize, w2: usize, x: usize, mask: v128): v128 {
  const x0 = v128.load(x, (sizeof<U>() - 1) * 64)
  const x1 = v128.load(x, (sizeof<U>() - 1) * 64 + 16)
  const x2 = v128.load(x, (sizeof<U>() - 1) * 64 + 32)
  const x3 = v128.load(x, (sizeof<U>() - 1) * 64 + 48)
  const p0 = unpacked<B, U, u8>(w, mask)
  const p1 = unpacked<B, U, u16>(w, mask)
  const p2 = unpacked<B, U, u32>(w, mask)
  const p3 = unpacked<B, U, u64>(w, mask)
  const first = unitDot(p0, p1, p2, p3, x0, x1, x2, x3)
  const q0 = unpacked<B, U, u8>(w2, mask)
  const q1 = unpacked<B, U, u16>(w2, mask)
  const q2 = unpacked<B, U, u32>(w2, mask)
  const q3 = unpacked<B, U, u64>(w2, mask)
  return merge(first, unitDot(q0, q1, q2, q3, x0, x1, x2, x3))
}

/** Eight 16-bit sums of eight products each, at most 8 · 15 · 127 = 15240; or four of 32 bits, of sixteen. */
// @ts-ignore: decorator
@inline
function unitDot(q0: v128, q1: v128, q2: v128, q3: v128, x0: v128, x1: v128, x2: v128, x3: v128): v128 {
  if (DOT_PRODUCTS) return dotFour(x0, x1, x2, x3, q0, q1, q2, q3, i32x4.splat(0))
  if (ASC_FEATURE_RELAXED_SIMD) {
    return i16x8.add(i16x8.add(i16x8.add(dotBytes(x0, q0), dotBytes(x1, q1)), dotBytes(x2, q2)), dotBytes(x3, q3))
  }
  let low = i16x8.add(i16x8.extmul_low_i8x16_s(x0, q0), i16x8.extmul_low_i8x16_s(x1, q1))
  let high = i16x8.add(i16x8.extmul_high_i8x16_s(x0, q0), i16x8.extmul_high_i8x16_s(x1, q1))
  low = i16x8.add(i16x8.add(low, i16x8.extmul_low_i8x16_s(x2, q2)), i16x8.extmul_low_i8x16_s(x3, q3))
  high = i16x8.add(i16x8.add(high, i16x8.extmul_high_i8x16_s(x2, q2)), i16x8.extmul_high_i8x16_s(x3, q3))
  return i16x8.add(low, high)
}

/** [a, a, b, b]: two sums of each unit. */
// @ts-ignore: decorator
@inline
function merge(a: v128, b: v128): v128 {
  if (DOT_PRODUCTS) return i32x4.add(v128.shuffle<i64>(a, b, 0, 2), v128.shuffle<i64>(a, b, 1, 3))
  return i32x4.extadd_pairwise_i16x8_s(i16x8.add(v128.shuffle<i64>(a, b, 0, 2), v128.shuffle<i64>(a, b, 1, 3)))
}

// @ts-ignore: decorator
@inline
function accumulate(acc: v128, sums: v128, scale: v128, xScale: v128): v128 {
  return madd(f32x4.convert_i32x4_s(sums), f32x4.mul(scale, xScale), acc)
}

/** The scales of two rows, each in two lanes. */
// @ts-ignore: decorator
@inline
function twoScales<S>(s: usize, s2: usize): v128 {
  const raw = v128.shuffle<i64>(v128.load16_splat(s), v128.load16_splat(s2), 0, 2)
  return isSigned<S>() ? halfToFloat4(v128.and(raw, i32x4.splat(0xffff))) : i32x4.shl(raw, 16)
}
