// What kernels share: multiply-add and integer dot products that differ between the builds (kernels.ts), horizontal sums in a
// fixed order, and exp, sigmoid and log1p by polynomials (within 2 ulp, no tables: the module has no data in memory).
/** a · b + c; fused where a build with relaxed SIMD runs on hardware that fuses, always or never on one machine. */
// @ts-ignore: decorator
@inline
export function madd(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c)
  return f32x4.add(f32x4.mul(a, b), c)
}

/** i16x8 of x[2i] · q[2i] + x[2i + 1] · q[2i + 1]; x signed bytes, q bytes below 16. Relaxed SIMD only. */
// @ts-ignore: decorator
@inline
export function dotBytes(x: v128, q: v128): v128 {
  return i16x8.relaxed_dot_i8x16_i7x16_s(x, q)
}

/**
 * i32x4 of Σ x[4i + j] · q[4i + j] over four j, and c; x signed bytes, q bytes below 128. Only for the build with dot products
 * (DOT_PRODUCTS, see kernels.ts): where the processor has none, these are five instructions.
 */
// @ts-ignore: decorator
@inline
export function dotWords(x: v128, q: v128, c: v128): v128 {
  return i32x4.relaxed_dot_i8x16_i7x16_add_s(x, q, c)
}

/** The same of four vectors, one after the other. */
// @ts-ignore: decorator
@inline
export function dotFour(
  x0: v128, x1: v128, x2: v128, x3: v128, q0: v128, q1: v128, q2: v128, q3: v128, c: v128,
): v128 {
  return dotWords(x3, q3, dotWords(x2, q2, dotWords(x1, q1, dotWords(x0, q0, c))))
}

/** (a0 + a2) + (a1 + a3). */
// @ts-ignore: decorator
@inline
export function sumLanes(a: v128): f32 {
  const pairs = f32x4.add(a, v128.shuffle<f32>(a, a, 2, 3, 0, 1))
  return f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1)
}

/** [Σa, Σb, Σc, Σd] of float lanes, each in the order of `sumLanes`. */
// @ts-ignore: decorator
@inline
export function sumLanes4(a: v128, b: v128, c: v128, d: v128): v128 {
  // [a0 b0 a1 b1] + [a2 b2 a3 b3] = [a02 b02 a13 b13]
  const ab = f32x4.add(v128.shuffle<f32>(a, b, 0, 4, 1, 5), v128.shuffle<f32>(a, b, 2, 6, 3, 7))
  const cd = f32x4.add(v128.shuffle<f32>(c, d, 0, 4, 1, 5), v128.shuffle<f32>(c, d, 2, 6, 3, 7))
  return f32x4.add(v128.shuffle<f32>(ab, cd, 0, 1, 4, 5), v128.shuffle<f32>(ab, cd, 2, 3, 6, 7))
}

/** Products of eight vectors with 32 floats at x, in two chains. */
// @ts-ignore: decorator
@inline
export function dot32(w0: v128, w1: v128, w2: v128, w3: v128, w4: v128, w5: v128, w6: v128, w7: v128, x: usize): v128 {
  let even = f32x4.mul(w0, v128.load(x))
  let odd = f32x4.mul(w1, v128.load(x, 16))
  even = madd(w2, v128.load(x, 32), even)
  odd = madd(w3, v128.load(x, 48), odd)
  even = madd(w4, v128.load(x, 64), even)
  odd = madd(w5, v128.load(x, 80), odd)
  even = madd(w6, v128.load(x, 96), even)
  odd = madd(w7, v128.load(x, 112), odd)
  return f32x4.add(even, odd)
}

/** e^x. Cephes' expf with the power of two in two steps, so that subnormal and infinite results come out right. */
// @ts-ignore: decorator
@inline
export function exp4(x: v128): v128 {
  // pmin and pmax are one instruction each, and leave a NaN that comes first.
  const clamped = f32x4.pmin(f32x4.pmax(x, f32x4.splat(-104)), f32x4.splat(89))
  // Adding 1.5 · 2^23 rounds to an integer that is also in the low bits.
  const shifted = f32x4.add(f32x4.mul(clamped, f32x4.splat(1.44269504088896341)), f32x4.splat(12582912))
  const n = f32x4.sub(shifted, f32x4.splat(12582912))
  let r = f32x4.sub(clamped, f32x4.mul(n, f32x4.splat(0.693359375)))
  r = f32x4.sub(r, f32x4.mul(n, f32x4.splat(-2.12194440e-4)))
  let p = f32x4.splat(1.9875691500e-4)
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.3981999507e-3))
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(8.3334519073e-3))
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(4.1665795894e-2))
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.6666665459e-1))
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(5.0000001201e-1))
  p = f32x4.add(f32x4.add(f32x4.mul(p, f32x4.mul(r, r)), r), f32x4.splat(1))
  const exponent = i32x4.sub(shifted, i32x4.splat(0x4b400000))
  const half = i32x4.shr_s(exponent, 1)
  const bias = i32x4.splat(127)
  const first = i32x4.shl(i32x4.add(half, bias), 23)
  const second = i32x4.shl(i32x4.add(i32x4.sub(exponent, half), bias), 23)
  return f32x4.mul(f32x4.mul(p, first), second)
}

// @ts-ignore: decorator
@inline
export function exp1(x: f32): f32 {
  return f32x4.extract_lane(exp4(f32x4.splat(x)), 0)
}

/** 1 / (1 + e^-x). */
// @ts-ignore: decorator
@inline
export function sigmoid4(x: v128): v128 {
  const one = f32x4.splat(1)
  return f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(x))))
}

// @ts-ignore: decorator
@inline
export function sigmoid1(x: f32): f32 {
  return f32x4.extract_lane(sigmoid4(f32x4.splat(x)), 0)
}

/** x · sigmoid(x). */
// @ts-ignore: decorator
@inline
export function silu4(x: v128): v128 {
  return f32x4.div(x, f32x4.add(f32x4.splat(1), exp4(f32x4.neg(x))))
}

/** log(1 + e^x) = max(x, 0) + log1p(e^-|x|), with log1p(u) = 2 atanh(u / (2 + u)). */
// @ts-ignore: decorator
@inline
export function softplus4(x: v128): v128 {
  const u = exp4(f32x4.neg(f32x4.abs(x)))
  const s = f32x4.div(u, f32x4.add(u, f32x4.splat(2)))
  const ss = f32x4.mul(s, s)
  let p = f32x4.splat(2.0 / 17.0)
  p = f32x4.add(f32x4.mul(p, ss), f32x4.splat(2.0 / 15.0))
  p = f32x4.add(f32x4.mul(p, ss), f32x4.splat(2.0 / 13.0))
  p = f32x4.add(f32x4.mul(p, ss), f32x4.splat(2.0 / 11.0))
  p = f32x4.add(f32x4.mul(p, ss), f32x4.splat(2.0 / 9.0))
  p = f32x4.add(f32x4.mul(p, ss), f32x4.splat(2.0 / 7.0))
  p = f32x4.add(f32x4.mul(p, ss), f32x4.splat(2.0 / 5.0))
  p = f32x4.add(f32x4.mul(p, ss), f32x4.splat(2.0 / 3.0))
  p = f32x4.add(f32x4.mul(p, ss), f32x4.splat(2))
  return f32x4.add(f32x4.pmax(x, f32x4.splat(0)), f32x4.mul(p, s))
}

// --- floats in weights ------------------------------------------------------------------------------------------

/** Four halves in the low 16 bits of each lane, as floats. Exact for all values, subnormal and infinite ones too. */
// @ts-ignore: decorator
@inline
export function halfToFloat4(h: v128): v128 {
  const magnitude = i32x4.shl(v128.and(h, i32x4.splat(0x7fff)), 13)
  const finite = f32x4.mul(magnitude, f32x4.splat(reinterpret<f32>(0x77800000))) // · 2^112 moves the exponent's bias
  const special = v128.or(magnitude, i32x4.splat(0x7f800000))
  const isSpecial = i32x4.ge_s(magnitude, i32x4.splat(0x0f800000))
  const sign = i32x4.shl(v128.and(h, i32x4.splat(0x8000)), 16)
  return v128.or(v128.bitselect(special, finite, isSpecial), sign)
}

/** Four 16-bit floats at `address`; `half`: F16, else BF16. */
// @ts-ignore: decorator
@inline
export function loadFloats4(address: usize, half: bool): v128 {
  const raw = v128.load_ext<u16>(address)
  return half ? halfToFloat4(raw) : i32x4.shl(raw, 16)
}

/** `count` (1 to 3) 16-bit floats at `address`, zeros after them; reads no further. */
// @ts-ignore: decorator
@inline
export function loadFloatsTail(address: usize, count: i32, half: bool): v128 {
  let raw = i32x4(load<u16>(address), 0, 0, 0)
  if (count > 1) raw = i32x4.replace_lane(raw, 1, load<u16>(address, 2))
  if (count > 2) raw = i32x4.replace_lane(raw, 2, load<u16>(address, 4))
  return half ? halfToFloat4(raw) : i32x4.shl(raw, 16)
}

/**
 * Zero; exported and never written, so that no compiler can know it. Since version 13 (Node 24) V8
 * makes a constant vector anew at each use, with three instructions; one that depends on a variable
 * it makes once.
 */
export let nothing: i32 = 0

/** A constant that stays in a register. Call it outside the loop that uses it. */
// @ts-ignore: decorator
@inline
export function kept(constant: v128): v128 {
  return v128.or(constant, i32x4.splat(nothing))
}
