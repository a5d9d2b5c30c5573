// Norms of rows. Sums of squares run over four lanes, then a tail; rows of any length.
import { madd, sumLanes } from '../assembly/simd.as'

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
