// Activation records for weights in blocks (layout: blocks.as.ts): int8 with a scale for each group of the weights.
import { recordUnit, UNIT } from './blocks.as'
import { maximum, permute2, permute4, quantize } from './prepareInput.as'

export function prepareBlocks(
  out: usize, outStride: usize, x: usize, xStride: usize,
  cols: i32, bits: i32, group: i32, factor: f32, isLanes: bool, tokenBegin: i32, tokenEnd: i32,
): void {
  const groups = UNIT / group
  for (let t = tokenBegin; t < tokenEnd; t++) {
    let unit = out + <usize>t * outStride
    const row = x + <usize>t * xStride
    for (let column = 0; column < cols; column += UNIT) {
      for (let g = 0; g < groups; g++) {
        const to = unit + <usize>(g * group)
        const floats = unit + <usize>UNIT + (<usize>g << 2)
        const from = column + g * group
        if (from >= cols) {
          memory.fill(to, 0, <usize>group)
          store<f32>(floats, 0)
          store<f32>(floats + (<usize>groups << 2), 0)
          continue
        }
        const begin = row + (<usize>from << 2)
        const high = maximum(begin, group)
        const inverse: f32 = high > 0 ? 127 / high : 0
        const scale = high * <f32>(1.0 / 127.0)
        const sum = quantize(to, begin, group, inverse)
        store<f32>(floats, scale)
        store<f32>(floats + (<usize>groups << 2), factor * (scale * <f32>sum))
      }
      if (bits == 4) for (let at = unit; at < unit + <usize>UNIT; at += 32) permute4(at)
      if (isLanes) for (let g = 0; g < groups; g++) storeLanes(unit + <usize>(g * group), group, unit + <usize>UNIT + (<usize>(groups + g) << 2), factor)
      if (bits == 2) for (let at = unit; at < unit + <usize>UNIT; at += 64) permute2(at)
      unit += recordUnit(group)
    }
  }
}

/**
 * The sums of a group in the two lanes of 16 bits in which products of its codes are added up (matmulNibbles.as.ts, matmulBytes.as.ts): of every
 * first and second byte, and of every third and fourth.
 */
// @ts-ignore: decorator
@inline
function storeLanes(bytes: usize, group: i32, to: usize, factor: f32): void {
  let all = i16x8.extadd_pairwise_i8x16_s(v128.load(bytes))
  if (group == 32) all = i16x8.add(all, i16x8.extadd_pairwise_i8x16_s(v128.load(bytes, 16)))
  const half = i16x8.add(all, v128.shuffle<i64>(all, all, 1, 0))
  const lanes = i16x8.add(half, v128.shuffle<i32>(half, half, 1, 0, 3, 2))
  v128.store32_lane(to, i16x8.mul(lanes, i16x8.splat(<i16>factor)), 0)
}
