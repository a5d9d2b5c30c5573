// The gated delta rule, token by token, four rows of a head's state at a time: the rows stay in the first-level cache
// while all tokens pass, and the single step has the same bits as many.
import { madd, sumLanes4, exp4, sigmoid4, softplus4 } from '../assembly/simd.as'

export function gatedDelta(
  out: usize, outStride: usize, q: usize, k: usize, qkStride: usize, v: usize, vStride: usize,
  beta: usize, decay: usize, gateStride: usize, stateIn: usize, stateOut: usize,
  keyHeads: i32, valueHeads: i32, keyDim: i32, valueDim: i32, tokens: i32, headBegin: i32, headEnd: i32,
): void {
  const keyBytes = <usize>keyDim << 2
  for (let h = headBegin; h < headEnd; h++) {
    const keyOffset = <usize>(h / (valueHeads / keyHeads)) * keyBytes
    for (let first = 0; first < valueDim; first += 4) {
      const row = <usize>(h * valueDim + first)
      const count = min(4, valueDim - first)
      let from = stateIn + row * keyBytes
      const to = stateOut + row * keyBytes
      touch(from, to, <usize>count * keyBytes, out + (row << 2))
      for (let t: usize = 0; t < <usize>tokens; t++) {
        const query = q + t * qkStride + keyOffset
        const key = k + t * qkStride + keyOffset
        const value = v + t * vStride + (row << 2)
        const result = out + t * outStride + (row << 2)
        const gates = t * gateStride + (<usize>h << 2)
        if (count == 4 && keyBytes == 512) {
          step<u8>(from, to, 512, 512, 512, 512, query, key, value, result, 4, load<f32>(beta + gates), load<f32>(decay + gates))
        } else {
          // A missing row repeats the last one, with the same result.
          const step1 = count > 1 ? keyBytes : 0
          const step2 = count > 2 ? keyBytes : 0
          const step3 = count > 3 ? keyBytes : 0
          step<u16>(
            from, to, keyBytes, step1, step2, step3, query, key, value, result, count,
            load<f32>(beta + gates), load<f32>(decay + gates),
          )
        }
        from = to
      }
    }
  }
}

/**
 * Reads a word of every cache line of two stretches of `size` bytes. The step walks four rows at once, which the memory's
 * prefetchers do not follow; this way all its misses are under way together, those of what it writes too. What was read
 * goes where a result will be, so that no compiler leaves the reads out.
 */
// @ts-ignore: decorator
@inline
function touch(from: usize, to: usize, size: usize, result: usize): void {
  let words: u32 = 0
  for (const end = from + size; from < end; from += 64) {
    words |= load<u32>(from) | load<u32>(to)
    to += 64
  }
  store<u32>(result, words)
}

/**
 * d = (v - decay · S·k) · beta; S = decay · S + d ⊗ k; out = S·q, for four rows of the state. The step from row 0 to 1, 1 to
 * 2, 2 to 3 in bytes; with F = u8 they are 512, the usual head, and offsets are constants.
 */
// @ts-ignore: decorator
@inline
function step<F>(
  from: usize, to: usize, keyBytes: usize, step1: usize, step2: usize, step3: usize,
  q: usize, k: usize, v: usize, out: usize, count: i32, beta: f32, decay: f32,
): void {
  const fixed = sizeof<F>() == 1
  const row1 = step1
  const row2 = row1 + step2
  const row3 = row2 + step3
  let sum0 = f32x4.splat(0)
  let sum1 = f32x4.splat(0)
  let sum2 = f32x4.splat(0)
  let sum3 = f32x4.splat(0)
  let s = from
  let key = k
  const keyEnd = k + (fixed ? 512 : keyBytes)
  do {
    const kk = v128.load(key)
    sum0 = madd(v128.load(s), kk, sum0)
    sum1 = madd(fixed ? v128.load(s, 512) : v128.load(s + row1), kk, sum1)
    sum2 = madd(fixed ? v128.load(s, 1024) : v128.load(s + row2), kk, sum2)
    sum3 = madd(fixed ? v128.load(s, 1536) : v128.load(s + row3), kk, sum3)
    s += 16
    key += 16
  } while (key < keyEnd)
  const decays = f32x4.splat(decay)
  const memory = f32x4.mul(sumLanes4(sum0, sum1, sum2, sum3), decays)
  let value: v128
  if (fixed) value = v128.load(v)
  else {
    const last = load<f32>(v + (<usize>(count - 1) << 2))
    value = f32x4(load<f32>(v), count > 1 ? load<f32>(v, 4) : last, count > 2 ? load<f32>(v, 8) : last, last)
  }
  const delta = f32x4.mul(f32x4.sub(value, memory), f32x4.splat(beta))
  const delta0 = v128.shuffle<f32>(delta, delta, 0, 0, 0, 0)
  const delta1 = v128.shuffle<f32>(delta, delta, 1, 1, 1, 1)
  const delta2 = v128.shuffle<f32>(delta, delta, 2, 2, 2, 2)
  const delta3 = v128.shuffle<f32>(delta, delta, 3, 3, 3, 3)
  sum0 = f32x4.splat(0)
  sum1 = f32x4.splat(0)
  sum2 = f32x4.splat(0)
  sum3 = f32x4.splat(0)
  s = from
  key = k
  let query = q
  let d = to
  do {
    const kk = v128.load(key)
    const qq = v128.load(query)
    // All four are read before any is written: rows may be repeated in place.
    const s0 = madd(delta0, kk, f32x4.mul(v128.load(s), decays))
    const s1 = madd(delta1, kk, f32x4.mul(fixed ? v128.load(s, 512) : v128.load(s + row1), decays))
    const s2 = madd(delta2, kk, f32x4.mul(fixed ? v128.load(s, 1024) : v128.load(s + row2), decays))
    const s3 = madd(delta3, kk, f32x4.mul(fixed ? v128.load(s, 1536) : v128.load(s + row3), decays))
    v128.store(d, s0)
    if (fixed) {
      v128.store(d, s1, 512)
      v128.store(d, s2, 1024)
      v128.store(d, s3, 1536)
    } else {
      v128.store(d + row1, s1)
      v128.store(d + row2, s2)
      v128.store(d + row3, s3)
    }
    sum0 = madd(s0, qq, sum0)
    sum1 = madd(s1, qq, sum1)
    sum2 = madd(s2, qq, sum2)
    sum3 = madd(s3, qq, sum3)
    s += 16
    d += 16
    key += 16
    query += 16
  } while (key < keyEnd)
  const result = sumLanes4(sum0, sum1, sum2, sum3)
  if (fixed) v128.store(out, result)
  else {
    store<f32>(out, f32x4.extract_lane(result, 0))
    if (count > 1) store<f32>(out, f32x4.extract_lane(result, 1), 4)
    if (count > 2) store<f32>(out, f32x4.extract_lane(result, 2), 8)
    if (count > 3) store<f32>(out, f32x4.extract_lane(result, 3), 12)
  }
}

/** The two numbers per value head that steer the delta rule. */
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
