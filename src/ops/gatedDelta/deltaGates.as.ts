// The two numbers per value head that steer the delta rule.
import { exp4, sigmoid4, softplus4 } from '../assembly/simd.as'

export function deltaGates(
  beta: usize, decay: usize, b: usize, a: usize, stride: usize, aLog: usize, dtBias: usize, heads: i32, tokens: i32,
): void {
  for (let t: usize = 0; t < <usize>tokens; t++) {
    const row = t * stride
    for (let i: usize = 0, end = <usize>heads << 2; i < end; i += 16) {
      v128.store(beta + row + i, sigmoid4(v128.load(b + row + i)))
      const rate = f32x4.neg(exp4(v128.load(aLog + i)))
      const time = softplus4(f32x4.add(v128.load(a + row + i), v128.load(dtBias + i)))
      v128.store(decay + row + i, exp4(f32x4.mul(rate, time)))
    }
  }
}
