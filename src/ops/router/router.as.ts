// The router: which experts a token goes to, and with which weights. What is chosen by is the logits where that gives the
// same as the scores, else the scores with their selection bias, in the best groups. Weights are scores without that bias.
// A logit or bias that is not finite makes all weights NaN, chosen or not: it must not vanish.
import { highestIndex } from '../argmax/argmax.as'
import { exp1, exp4, sigmoid1, sigmoid4, sumLanes } from '../assembly/simd.as'

/** A NaN that no arithmetic makes: marks an expert that is taken, or cannot be. */
// @ts-ignore: decorator
@inline
const TAKEN: u32 = 0xffdead00

export function route(
  indices: usize, weights: usize, logits: usize, logitsStride: usize, experts: i32, k: i32, sigmoid: bool,
  selectionBias: usize, groups: i32, groupsUsed: i32, renormalize: bool, scale: f32,
  tokenBegin: i32, tokenEnd: i32, scratch: usize,
): void {
  const byLogits = selectionBias == 0 && groups == 0
  const needsSum = !sigmoid && (!byLogits || !renormalize)
  for (let t = tokenBegin; t < tokenEnd; t++) {
    const row = logits + <usize>t * logitsStride
    let highest: f32 = 0
    let all: f32 = 1
    if (needsSum) {
      const top = highestIndex(row, experts)
      if (top >= 0) highest = load<f32>(row + (<usize>top << 2))
      all = sumOfPowers(row, experts, highest)
    }
    let total: f32 = zeroOrNan(row, experts)
    if (byLogits) memory.copy(scratch, row, <usize>experts << 2)
    else {
      scoresForChoice(scratch, row, experts, sigmoid, highest, all, selectionBias)
      total += zeroOrNan(scratch, experts)
      if (groups > 0) keepGroups(scratch, experts, groups, groupsUsed)
    }
    const index = indices + (<usize>(t * k) << 2)
    const weight = weights + (<usize>(t * k) << 2)
    for (let rank: usize = 0; rank < <usize>k; rank++) {
      const best = <usize>highestLeft(scratch, experts)
      store<u32>(scratch + (best << 2), TAKEN)
      const logit = load<f32>(row + (best << 2))
      if (rank == 0 && !needsSum) highest = logit
      const score = sigmoid ? sigmoid1(logit) : exp1(logit - highest)
      store<u32>(index + (rank << 2), <u32>best)
      store<f32>(weight + (rank << 2), score)
      if (renormalize) total += score
    }
    if (selectionBias != 0) sortByLogits(index, weight, row, k)
    if (!renormalize) total += all
    else if (sigmoid) total += 1e-20 // scores that are all 0 stay 0
    for (let rank: usize = 0; rank < <usize>k; rank++) {
      store<f32>(weight + (rank << 2), (load<f32>(weight + (rank << 2)) / total) * scale)
    }
  }
}

/** The chosen, which were chosen by more than their logits, in falling order of these; of equals, the lower index first. */
function sortByLogits(index: usize, weight: usize, logits: usize, k: i32): void {
  for (let i = 1; i < k; i++) {
    const expert = load<u32>(index + (<usize>i << 2))
    const score = load<f32>(weight + (<usize>i << 2))
    const logit = load<f32>(logits + (<usize>expert << 2))
    let at = index + (<usize>i << 2)
    let to = weight + (<usize>i << 2)
    while (at > index) {
      const other = load<u32>(at - 4)
      const before = load<f32>(logits + (<usize>other << 2))
      if (!(before < logit || (before == logit && other > expert))) break
      store<u32>(at, other)
      store<f32>(to, load<f32>(to - 4))
      at -= 4
      to -= 4
    }
    store<u32>(at, expert)
    store<f32>(to, score)
  }
}

/** Σ e^(x - highest). */
function sumOfPowers(x: usize, count: i32, highest: f32): f32 {
  let sums = f32x4.splat(0)
  let i = 0
  for (; i + 4 <= count; i += 4) {
    sums = f32x4.add(sums, exp4(f32x4.sub(v128.load(x + (<usize>i << 2)), f32x4.splat(highest))))
  }
  let sum = sumLanes(sums)
  for (; i < count; i++) sum += exp1(load<f32>(x + (<usize>i << 2)) - highest)
  return sum
}

/** Scores and their bias. Rows of both are readable up to a multiple of 4. */
function scoresForChoice(
  out: usize, x: usize, count: i32, sigmoid: bool, highest: f32, all: f32, bias: usize,
): void {
  for (let i: usize = 0, end = <usize>count << 2; i < end; i += 16) {
    const logits = v128.load(x + i)
    let score: v128
    if (sigmoid) score = sigmoid4(logits)
    else score = f32x4.div(exp4(f32x4.sub(logits, f32x4.splat(highest))), f32x4.splat(all))
    v128.store(out + i, bias == 0 ? score : f32x4.add(score, v128.load(bias + i)))
  }
}

/** Marks the experts of all but the `used` best groups. A group's score is the sum of its two best. */
function keepGroups(scores: usize, experts: i32, groups: i32, used: i32): void {
  const size = experts / groups
  const best = scores + (<usize>((experts + 3) & ~3) << 2)
  for (let group = 0; group < groups; group++) {
    let first: f32 = -Infinity
    let second: f32 = size > 1 ? -Infinity : 0
    const from = scores + (<usize>(group * size) << 2)
    for (let i = 0; i < size; i++) {
      const score = load<f32>(from + (<usize>i << 2))
      if (score > first) {
        if (size > 1) second = first
        first = score
      } else if (score > second && size > 1) second = score
    }
    store<f32>(best + (<usize>group << 2), first + second)
  }
  for (let i = 0; i < used; i++) store<u32>(best + (<usize>highestLeft(best, groups) << 2), TAKEN)
  for (let group = 0; group < groups; group++) {
    if (load<u32>(best + (<usize>group << 2)) == TAKEN) continue
    for (let i = group * size; i < (group + 1) * size; i++) store<u32>(scores + (<usize>i << 2), TAKEN)
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
function highestLeft(scores: usize, count: i32): i32 {
  let best = highestIndex(scores, count)
  if (best < 0) {
    best = 0
    while (load<u32>(scores + (<usize>best << 2)) == TAKEN) best++
  }
  return best
}
