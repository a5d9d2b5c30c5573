// The activation between an expert's gate and up, and its down product.
import { sigmoid4, silu4 } from '../assembly/simd.as'

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

export function clampedSwiglu(
  out: usize, outStride: usize, gate: usize, gateStride: usize, up: usize, upStride: usize,
  limit: f32, alpha: f32, tokens: i32, begin: i32, end: i32,
): void {
  const most = f32x4.splat(limit)
  const least = f32x4.splat(-limit)
  const alphas = f32x4.splat(alpha)
  const one = f32x4.splat(1)
  for (let t: usize = 0; t < <usize>tokens; t++) {
    for (let i = <usize>begin << 2, stop = <usize>end << 2; i < stop; i += 16) {
      const rawGate = v128.load(gate + t * gateStride + i)
      const rawUp = v128.load(up + t * upStride + i)
      const g = f32x4.min(rawGate, most)
      const u = f32x4.max(f32x4.min(rawUp, most), least)
      const y = f32x4.mul(f32x4.mul(f32x4.add(u, one), g), sigmoid4(f32x4.mul(g, alphas)))
      // What is infinite must not vanish in the clamp.
      const unsound = f32x4.mul(f32x4.add(rawGate, rawUp), f32x4.splat(0))
      v128.store(out + t * outStride + i, f32x4.add(y, unsound))
    }
  }
}
