// Norms of rows. Sums of squares run over four lanes, then a tail; rows of any length.
import { madd, sumLanes, silu4 } from '../assembly/simd.as'

export function rmsNorm(
  out: usize, outStride: usize, x: usize, xStride: usize, weight: usize, dim: i32, eps: f32, rows: i32,
): void {
  for (let row = 0; row < rows; row++) normRow(out + <usize>row * outStride, x + <usize>row * xStride, weight, dim, eps)
}

export function rmsNormHeads(
  out: usize, outTokenStride: usize, outHeadStride: usize, x: usize, xTokenStride: usize, xHeadStride: usize,
  weight: usize, dim: i32, eps: f32, tokens: i32, heads: i32,
): void {
  for (let t: usize = 0; t < <usize>tokens; t++) {
    for (let h: usize = 0; h < <usize>heads; h++) {
      normRow(out + t * outTokenStride + h * outHeadStride, x + t * xTokenStride + h * xHeadStride, weight, dim, eps)
    }
  }
}

export function normRow(out: usize, x: usize, weight: usize, dim: i32, eps: f32): void {
  const factor: f32 = 1 / sqrt<f32>(sumSquares(x, dim) / <f32>dim + eps)
  let i: usize = 0
  for (const end = <usize>(dim & ~3) << 2; i < end; i += 16) {
    v128.store(out + i, f32x4.mul(f32x4.mul(v128.load(x + i), f32x4.splat(factor)), v128.load(weight + i)))
  }
  for (const end = <usize>dim << 2; i < end; i += 4) {
    store<f32>(out + i, load<f32>(x + i) * factor * load<f32>(weight + i))
  }
}

export function sumSquares(x: usize, dim: i32): f32 {
  let sum0 = f32x4.splat(0)
  let sum1 = f32x4.splat(0)
  let i: usize = 0
  for (const end = <usize>(dim & ~7) << 2; i < end; i += 32) {
    const a = v128.load(x + i)
    const b = v128.load(x + i, 16)
    sum0 = madd(a, a, sum0)
    sum1 = madd(b, b, sum1)
  }
  let total = sumLanes(f32x4.add(sum0, sum1))
  for (const end = <usize>dim << 2; i < end; i += 4) total += load<f32>(x + i) * load<f32>(x + i)
  return total
}

/** Queries and keys of a delta net, each head of length one, times a scale. */
export function l2NormHeads(
  out: usize, outStride: usize, x: usize, xStride: usize, dim: i32, scale: f32, tokens: i32, headBegin: i32, headEnd: i32,
): void {
  for (let t: usize = 0; t < <usize>tokens; t++) {
    for (let h = headBegin; h < headEnd; h++) {
      const at = (<usize>h * dim) << 2
      const from = x + t * xStride + at
      const to = out + t * outStride + at
      const factor = scale / sqrt<f32>(sumSquares(from, dim) + 1e-6)
      let i: usize = 0
      for (const end = <usize>(dim & ~3) << 2; i < end; i += 16) {
        v128.store(to + i, f32x4.mul(v128.load(from + i), f32x4.splat(factor)))
      }
      for (const end = <usize>dim << 2; i < end; i += 4) store<f32>(to + i, load<f32>(from + i) * factor)
    }
  }
}

/** The norm of a delta net's heads, times the silu of their gates. */
export function rmsNormGated(
  out: usize, outStride: usize, x: usize, xStride: usize, z: usize, zStride: usize, weight: usize,
  dim: i32, eps: f32, tokens: i32, headBegin: i32, headEnd: i32,
): void {
  for (let t: usize = 0; t < <usize>tokens; t++) {
    for (let h = headBegin; h < headEnd; h++) {
      const at = (<usize>h * dim) << 2
      const to = out + t * outStride + at
      const gate = z + t * zStride + at
      normRow(to, x + t * xStride + at, weight, dim, eps)
      let i: usize = 0
      for (const end = <usize>(dim & ~3) << 2; i < end; i += 16) {
        v128.store(to + i, f32x4.mul(v128.load(to + i), silu4(v128.load(gate + i))))
      }
      for (const end = <usize>dim << 2; i < end; i += 4) {
        const gated = f32x4.extract_lane(silu4(f32x4.splat(load<f32>(gate + i))), 0)
        store<f32>(to + i, load<f32>(to + i) * gated)
      }
    }
  }
}
