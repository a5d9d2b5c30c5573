// The gated delta rule, token by token, four rows of a head's state at a time: the rows stay in the first-level cache
// while all tokens pass, and the single step has the same bits as many.
import { exp4, madd, sigmoid4, softplus4, sumLanes4 } from './simd'

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

export function gatedDelta(
  out: usize, outStride: usize, q: usize, k: usize, qkStride: usize, v: usize, vStride: usize,
  beta: usize, decay: usize, gateStride: usize, stateIn: usize, stateOut: usize,
  keyHeads: i32, valueHeads: i32, keyDim: i32, valueDim: i32, tokens: i32, headBegin: i32, headEnd: i32,
): void {
  const keyBytes = <usize>keyDim << 2
  for (let h = headBegin; h < headEnd; h++) {
    const keyOffset = <usize>(h / (valueHeads / keyHeads)) * keyBytes
    for (let first = 0; first < valueDim; first += 4) {
      // Up to four rows; a missing one repeats the last, with the same result.
      const last = valueDim - 1 - first
      const row0 = <usize>(h * valueDim + first)
      const row1 = row0 + min(1, last)
      const row2 = row0 + min(2, last)
      const row3 = row0 + min(3, last)
      let from = stateIn
      for (let t: usize = 0; t < <usize>tokens; t++) {
        const gates = t * gateStride + (<usize>h << 2)
        step(
          from + row0 * keyBytes, from + row1 * keyBytes, from + row2 * keyBytes, from + row3 * keyBytes,
          stateOut + row0 * keyBytes, stateOut + row1 * keyBytes, stateOut + row2 * keyBytes, stateOut + row3 * keyBytes,
          q + t * qkStride + keyOffset, k + t * qkStride + keyOffset, keyBytes,
          v + t * vStride + (row0 << 2), out + t * outStride + (row0 << 2), min(4, last + 1),
          load<f32>(beta + gates), load<f32>(decay + gates),
        )
        from = stateOut
      }
    }
  }
}

/** S = decay · S; d = (v - S·k) · beta; S += d ⊗ k; out = S·q, for four rows. */
// @ts-ignore: decorator
@inline
function step(
  from0: usize, from1: usize, from2: usize, from3: usize, to0: usize, to1: usize, to2: usize, to3: usize,
  q: usize, k: usize, keyBytes: usize, v: usize, out: usize, count: i32, beta: f32, decay: f32,
): void {
  let sum0 = f32x4.splat(0)
  let sum1 = f32x4.splat(0)
  let sum2 = f32x4.splat(0)
  let sum3 = f32x4.splat(0)
  for (let i: usize = 0; i < keyBytes; i += 16) {
    const key = v128.load(k + i)
    sum0 = madd(v128.load(from0 + i), key, sum0)
    sum1 = madd(v128.load(from1 + i), key, sum1)
    sum2 = madd(v128.load(from2 + i), key, sum2)
    sum3 = madd(v128.load(from3 + i), key, sum3)
  }
  const decays = f32x4.splat(decay)
  const memory = f32x4.mul(sumLanes4(sum0, sum1, sum2, sum3), decays)
  let value = v128.load32_zero(v)
  if (count > 1) value = f32x4.replace_lane(value, 1, load<f32>(v, 4))
  if (count > 2) value = f32x4.replace_lane(value, 2, load<f32>(v, 8))
  if (count > 3) value = f32x4.replace_lane(value, 3, load<f32>(v, 12))
  // A repeated row takes the value of the last one.
  if (count == 1) value = v128.shuffle<f32>(value, value, 0, 0, 0, 0)
  else if (count == 2) value = v128.shuffle<f32>(value, value, 0, 1, 1, 1)
  else if (count == 3) value = v128.shuffle<f32>(value, value, 0, 1, 2, 2)
  const delta = f32x4.mul(f32x4.sub(value, memory), f32x4.splat(beta))
  const delta0 = v128.shuffle<f32>(delta, delta, 0, 0, 0, 0)
  const delta1 = v128.shuffle<f32>(delta, delta, 1, 1, 1, 1)
  const delta2 = v128.shuffle<f32>(delta, delta, 2, 2, 2, 2)
  const delta3 = v128.shuffle<f32>(delta, delta, 3, 3, 3, 3)
  sum0 = f32x4.splat(0)
  sum1 = f32x4.splat(0)
  sum2 = f32x4.splat(0)
  sum3 = f32x4.splat(0)
  for (let i: usize = 0; i < keyBytes; i += 16) {
    const key = v128.load(k + i)
    const query = v128.load(q + i)
    // All four are read before any is written: rows may be repeated in place.
    const s0 = madd(delta0, key, f32x4.mul(v128.load(from0 + i), decays))
    const s1 = madd(delta1, key, f32x4.mul(v128.load(from1 + i), decays))
    const s2 = madd(delta2, key, f32x4.mul(v128.load(from2 + i), decays))
    const s3 = madd(delta3, key, f32x4.mul(v128.load(from3 + i), decays))
    v128.store(to0 + i, s0)
    v128.store(to1 + i, s1)
    v128.store(to2 + i, s2)
    v128.store(to3 + i, s3)
    sum0 = madd(s0, query, sum0)
    sum1 = madd(s1, query, sum1)
    sum2 = madd(s2, query, sum2)
    sum3 = madd(s3, query, sum3)
  }
  const result = sumLanes4(sum0, sum1, sum2, sum3)
  store<f32>(out, f32x4.extract_lane(result, 0))
  if (count > 1) store<f32>(out, f32x4.extract_lane(result, 1), 4)
  if (count > 2) store<f32>(out, f32x4.extract_lane(result, 2), 8)
  if (count > 3) store<f32>(out, f32x4.extract_lane(result, 3), 12)
}
