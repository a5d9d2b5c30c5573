// Rows times the sigmoid of their gates, head by head.
import { sigmoid4 } from '../assembly/simd.as'

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
