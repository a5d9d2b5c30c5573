// Queries and keys of a delta net, each head of length one, times a scale.
import { sumSquares } from './norm.as'

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
