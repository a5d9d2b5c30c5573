// Turns input vectors into the form that quantized matrix products take: in the order in which weights come out of their
// packed words, with what a group needs once per vector (its scale, its sum). Layout of a record: see kernels.ts.
// The body is padded to 64 elements by zeros, scales and sums to four groups.

// @ts-ignore: decorator
@inline
function paddedColumns(cols: i32): i32 {
  return (cols + 63) & ~63
}

// @ts-ignore: decorator
@inline
function paddedGroups(cols: i32, group: i32): i32 {
  return (cols / group + 3) & ~3
}

/** Where the scales of a fast record begin, and where its sums do. */
// @ts-ignore: decorator
@inline
export function fastScales(cols: i32): usize {
  return paddedColumns(cols)
}

// @ts-ignore: decorator
@inline
export function fastSums(cols: i32, group: i32): usize {
  return paddedColumns(cols) + (paddedGroups(cols, group) << 2)
}

// @ts-ignore: decorator
@inline
export function exactSums(cols: i32): usize {
  return paddedColumns(cols) << 2
}

export function prepareFast(
  out: usize, outStride: usize, x: usize, xStride: usize,
  cols: i32, bits: i32, group: i32, tokenBegin: i32, tokenEnd: i32,
): void {
  for (let t = tokenBegin; t < tokenEnd; t++) {
    const record = out + <usize>t * outStride
    quantizeGroups(record, x + <usize>t * xStride, cols, group)
    if (bits == 4) permute4(record, cols)
    else if (bits == 2) permute2(record, cols)
  }
}

/** int8 in natural order with scale = max|x| / 127 per group, and the sum of what was stored, scaled. */
function quantizeGroups(record: usize, x: usize, cols: i32, group: i32): void {
  const groups = cols / group
  const scales = record + fastScales(cols)
  const sums = record + fastSums(cols, group)
  const padded = paddedGroups(cols, group)
  const magic = f32x4.splat(12582912) // 1.5 · 2^23: adding it rounds half to even and leaves the integer in the low bits
  const magicBits = i32x4.splat(0x4b400000)
  const ones = i16x8.splat(1)
  for (let g = 0; g < padded; g++) {
    if (g >= groups) {
      store<f32>(scales + (<usize>g << 2), 0)
      store<f32>(sums + (<usize>g << 2), 0)
      continue
    }
    const begin = x + ((<usize>g * group) << 2)
    let top = f32x4.splat(0)
    for (let i: usize = 0, bytes = <usize>group << 2; i < bytes; i += 16) {
      top = f32x4.max(top, f32x4.abs(v128.load(begin + i)))
    }
    top = f32x4.max(top, v128.shuffle<f32>(top, top, 2, 3, 0, 1))
    top = f32x4.max(top, v128.shuffle<f32>(top, top, 1, 0, 3, 2))
    const high = f32x4.extract_lane(top, 0)
    const inverse = f32x4.splat(high > 0 ? 127 / high : 0)
    let sum = i32x4.splat(0)
    for (let i: usize = 0; i < <usize>group; i += 16) {
      const from = begin + (i << 2)
      const a = i32x4.sub(f32x4.add(f32x4.mul(v128.load(from), inverse), magic), magicBits)
      const b = i32x4.sub(f32x4.add(f32x4.mul(v128.load(from, 16), inverse), magic), magicBits)
      const c = i32x4.sub(f32x4.add(f32x4.mul(v128.load(from, 32), inverse), magic), magicBits)
      const d = i32x4.sub(f32x4.add(f32x4.mul(v128.load(from, 48), inverse), magic), magicBits)
      const low = i16x8.narrow_i32x4_s(a, b)
      const top = i16x8.narrow_i32x4_s(c, d)
      sum = i32x4.add(sum, i32x4.dot_i16x8_s(i16x8.add(low, top), ones))
      v128.store(record + <usize>g * group + i, i8x16.narrow_i16x8_s(low, top))
    }
    const total = i32x4.extract_lane(sum, 0) + i32x4.extract_lane(sum, 1) + i32x4.extract_lane(sum, 2) + i32x4.extract_lane(sum, 3)
    const scale = high * <f32>(1.0 / 127.0)
    store<f32>(scales + (<usize>g << 2), scale)
    store<f32>(sums + (<usize>g << 2), scale * <f32>total)
  }
  if (cols & 32) {
    v128.store(record + cols, i32x4.splat(0))
    v128.store(record + cols, i32x4.splat(0), 16)
  }
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

/** Blocks of 32: those that meet low nibbles, then those that meet high nibbles. */
function permute4(record: usize, cols: i32): void {
  for (let p = record, end = record + cols; p < end; p += 32) {
    const a = v128.load(p)
    const b = v128.load(p, 16)
    v128.store(p, evens(a, b))
    v128.store(p, odds(a, b), 16)
  }
}

/** Blocks of 64: those that meet bits 0–1 of the sixteen bytes, then 2–3, 4–5, 6–7. */
function permute2(record: usize, cols: i32): void {
  for (let p = record, end = record + paddedColumns(cols); p < end; p += 64) {
    const a = v128.load(p)
    const b = v128.load(p, 16)
    const c = v128.load(p, 32)
    const d = v128.load(p, 48)
    const even0 = evens(a, b)
    const even1 = evens(c, d)
    const odd0 = odds(a, b)
    const odd1 = odds(c, d)
    v128.store(p, evens(even0, even1))
    v128.store(p, evens(odd0, odd1), 16)
    v128.store(p, odds(even0, even1), 32)
    v128.store(p, odds(odd0, odd1), 48)
  }
}

/**
 * Blocks of four packed words: element k of each word, for k = 0, 1, …, divided by 2^(bits · k), because the product masks
 * the weight where it lies instead of shifting it down; the last k alone is shifted (its mask would hit the sign).
 */
export function prepareExact(
  out: usize, outStride: usize, x: usize, xStride: usize,
  cols: i32, bits: i32, group: i32, tokenBegin: i32, tokenEnd: i32,
): void {
  const perWord = 32 / bits
  for (let t = tokenBegin; t < tokenEnd; t++) {
    const record = out + <usize>t * outStride
    const row = x + <usize>t * xStride
    const padded = paddedColumns(cols)
    for (let block = 0; block < padded; block += perWord << 2) {
      let to = record + (<usize>block << 2)
      let factor: f32 = 1
      const step = reinterpret<f32>((127 - bits) << 23) // 2^-bits
      for (let k = 0; k < perWord; k++) {
        if (k == perWord - 1) factor = 1
        for (let word = 0; word < 4; word++) {
          const column = block + word * perWord + k
          store<f32>(to, column < cols ? load<f32>(row + (<usize>column << 2)) * factor : 0)
          to += 4
        }
        factor *= step
      }
    }
    const sums = record + exactSums(cols)
    const groups = cols / group
    for (let g = 0, end = paddedGroups(cols, group); g < end; g++) {
      let sum = f32x4.splat(0)
      if (g < groups) {
        const begin = row + ((<usize>g * group) << 2)
        for (let i: usize = 0, bytes = <usize>group << 2; i < bytes; i += 16) sum = f32x4.add(sum, v128.load(begin + i))
      }
      const pairs = f32x4.add(sum, v128.shuffle<f32>(sum, sum, 2, 3, 0, 1))
      store<f32>(sums + (<usize>g << 2), f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1))
    }
  }
}
