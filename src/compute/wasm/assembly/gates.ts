// Elementwise: gates and sums.
import { sigmoid4, silu4 } from './simd'

export function sigmoidGate(
  x: usize, xTokenStride: usize, xHeadStride: usize, gate: usize, gateTokenStride: usize, gateHeadStride: usize,
  dim: i32, tokens: i32, headBegin: i32, headEnd: i32,
): void {
  for (let t: usize = 0; t < <usize>tokens; t++) {
    for (let h = headBegin; h < headEnd; h++) {
      const to = x + t * xTokenStride + <usize>h * xHeadStride
      const from = gate + t * gateTokenStride + <usize>h * gateHeadStride
      let i: usize = 0
      for (const end = <usize>(dim & ~3) << 2; i < end; i += 16) {
        v128.store(to + i, f32x4.mul(v128.load(to + i), sigmoid4(v128.load(from + i))))
      }
      for (const end = <usize>dim << 2; i < end; i += 4) {
        store<f32>(to + i, load<f32>(to + i) * f32x4.extract_lane(sigmoid4(f32x4.splat(load<f32>(from + i))), 0))
      }
    }
  }
}

export function siluMul(
  out: usize, outStride: usize, gate: usize, gateStride: usize, up: usize, upStride: usize,
  tokens: i32, begin: i32, end: i32,
): void {
  for (let t: usize = 0; t < <usize>tokens; t++) {
    const to = out + t * outStride
    const g = gate + t * gateStride
    const u = up + t * upStride
    let i = <usize>begin << 2
    const stop = <usize>end << 2
    if (i < stop) {
      do {
        v128.store(to + i, f32x4.mul(silu4(v128.load(g + i)), v128.load(u + i)))
        i += 16
      } while (i < stop)
    }
  }
}

export function add(out: usize, x: usize, y: usize, count: i32): void {
  for (let i: usize = 0, end = <usize>count << 2; i < end; i += 16) {
    v128.store(out + i, f32x4.add(v128.load(x + i), v128.load(y + i)))
  }
}
