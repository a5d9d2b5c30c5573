// The router: the k highest of a token's logits and the softmax over those. Renormalizing to 1 cancels the sum over the
// other experts, so it is never taken. A logit that is not finite makes all weights NaN, chosen or not: it must not vanish.
import { highestIndex } from './argmax'
import { exp1, sumLanes } from './simd'

/** A NaN that no arithmetic makes: marks an expert that is taken. */
// @ts-ignore: decorator
@inline
const TAKEN: u32 = 0xffdead00

export function route(
  indices: usize, weights: usize, logits: usize, logitsStride: usize, experts: i32, k: i32,
  tokenBegin: i32, tokenEnd: i32, scratch: usize,
): void {
  for (let t = tokenBegin; t < tokenEnd; t++) {
    memory.copy(scratch, logits + <usize>t * logitsStride, <usize>experts << 2)
    const index = indices + (<usize>(t * k) << 2)
    const weight = weights + (<usize>(t * k) << 2)
    let highest: f32 = 0
    let total = zeroOrNan(scratch, experts)
    for (let rank: usize = 0; rank < <usize>k; rank++) {
      const best = <usize>highestLeft(scratch, experts)
      const logit = load<f32>(scratch + (best << 2))
      store<u32>(scratch + (best << 2), TAKEN)
      if (rank == 0) highest = logit
      const e = exp1(logit - highest)
      store<u32>(index + (rank << 2), <u32>best)
      store<f32>(weight + (rank << 2), e)
      total += e
    }
    for (let rank: usize = 0; rank < <usize>k; rank++) {
      store<f32>(weight + (rank << 2), load<f32>(weight + (rank << 2)) / total)
    }
  }
}

/** 0 times every value, added up: NaN where one of them is not finite. */
// @ts-ignore: decorator
@inline
function zeroOrNan(x: usize, count: i32): f32 {
  let sums = f32x4.splat(0)
  let i = 0
  for (; i + 4 <= count; i += 4) sums = f32x4.add(sums, f32x4.mul(v128.load(x + (<usize>i << 2)), f32x4.splat(0)))
  let sum = sumLanes(sums)
  for (; i < count; i++) sum += load<f32>(x + (<usize>i << 2)) * 0
  return sum
}

/** The highest that is not taken, the first of equals; where nothing compares (NaN, -Infinity), the first not taken. */
// @ts-ignore: decorator
@inline
function highestLeft(logits: usize, count: i32): i32 {
  let best = highestIndex(logits, count)
  if (best < 0) {
    best = 0
    while (load<u32>(logits + (<usize>best << 2)) == TAKEN) best++
  }
  return best
}
