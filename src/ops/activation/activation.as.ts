// Activations between an expert's gate and up, and its down product; biases, residuals and gates.
import { sigmoid4, silu4, loadFloats4, loadFloatsTail } from '../assembly/simd.as'

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

/** Adds a bias to rows that products have written, so ranges may end anywhere. */
export function addBias(
  out: usize, outStride: usize, outIndex: usize, bias: usize, type: i32, tokens: i32, begin: i32, end: i32,
): void {
  for (let i = begin; i < end; i += 4) {
    const left = end - i
    let four: v128
    if (type == 2) {
      const at = bias + (<usize>i << 2)
      if (left >= 4) four = v128.load(at)
      else four = f32x4(load<f32>(at), left > 1 ? load<f32>(at, 4) : 0, left > 2 ? load<f32>(at, 8) : 0, 0)
    } else {
      const at = bias + (<usize>i << 1)
      four = left >= 4 ? loadFloats4(at, type == 1) : loadFloatsTail(at, left, type == 1)
    }
    for (let t: usize = 0; t < <usize>tokens; t++) {
      const row = outIndex == 0 ? t : <usize>load<u32>(outIndex + (t << 2))
      const to = out + row * outStride + (<usize>i << 2)
      if (left >= 4) v128.store(to, f32x4.add(v128.load(to), four))
      else {
        store<f32>(to, load<f32>(to) + f32x4.extract_lane(four, 0))
        if (left > 1) store<f32>(to, load<f32>(to, 4) + f32x4.extract_lane(four, 1), 4)
        if (left > 2) store<f32>(to, load<f32>(to, 8) + f32x4.extract_lane(four, 2), 8)
      }
    }
  }
}

/** The residual stream takes up what a block gave. */
export function add(out: usize, x: usize, y: usize, count: i32): void {
  for (let i: usize = 0, end = <usize>count << 2; i < end; i += 16) {
    v128.store(out + i, f32x4.add(v128.load(x + i), v128.load(y + i)))
  }
}

/** Rows times the sigmoid of their gates, head by head. */
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
