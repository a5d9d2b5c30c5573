// The norm of a delta net's heads, times the silu of their gates.
import { normRow } from './norm.as'
import { silu4 } from '../assembly/simd.as'

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
