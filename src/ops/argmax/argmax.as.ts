// The highest of many floats, for the greedy token and the router. Four lanes keep their best value and its index; a later
// equal value never replaces an earlier one, and NaN never wins.
import { sumLanes } from '../assembly/simd.as'

/** -1 where one of them is NaN or infinite: whatever wins then means nothing. */
export function argmax(x: usize, count: i32): i32 {
  return scan(x, count, true)
}

/** -1 where there is nothing above -Infinity. */
export function highestIndex(x: usize, count: i32): i32 {
  return scan(x, count, false)
}

// @ts-ignore: decorator
@inline
function scan(x: usize, count: i32, mustBeFinite: bool): i32 {
  let winner = -1
  let highest: f32 = -Infinity
  let sum: f32 = 0 // of 0 times every value: 0, or NaN where one of them is not finite
  let i = 0
  if (count >= 4) {
    const none = i32x4.splat(i32.MAX_VALUE)
    const four = i32x4.splat(4)
    let best = f32x4.splat(-Infinity)
    let bestIndex = none
    let index = i32x4(0, 1, 2, 3)
    let sums = f32x4.splat(0)
    do {
      const value = v128.load(x + (<usize>i << 2))
      const higher = f32x4.gt(value, best)
      best = v128.bitselect(value, best, higher)
      bestIndex = v128.bitselect(index, bestIndex, higher)
      index = i32x4.add(index, four)
      if (mustBeFinite) sums = f32x4.add(sums, f32x4.mul(value, f32x4.splat(0)))
      i += 4
    } while (i + 4 <= count)
    for (let lane = 0; lane < 4; lane++) {
      const value = f32x4.extract_lane(best, 0)
      const at = i32x4.extract_lane(bestIndex, 0)
      if (value > highest || (value == highest && at < winner)) {
        highest = value
        winner = at
      }
      best = v128.shuffle<f32>(best, best, 1, 2, 3, 0)
      bestIndex = v128.shuffle<i32>(bestIndex, bestIndex, 1, 2, 3, 0)
    }
    if (mustBeFinite) sum = sumLanes(sums)
  }
  for (; i < count; i++) {
    const value = load<f32>(x + (<usize>i << 2))
    if (mustBeFinite) sum += value * 0
    if (value > highest) {
      highest = value
      winner = i
    }
  }
  return mustBeFinite && sum != 0 ? -1 : winner
}
