// The weighted sum of a token's experts in the order of its own ranking, then its shared expert: an order that does not
// depend on which experts other tokens took or which was read first.
import { madd, sigmoid1 } from './simd'

export function combineExperts(
  out: usize, outStride: usize, expertOut: usize, expertStride: usize, weights: usize, k: i32,
  shared: usize, sharedStride: usize, gate: usize, gateStride: usize, tokens: i32, colBegin: i32, colEnd: i32,
): void {
  for (let t: usize = 0; t < <usize>tokens; t++) {
    const to = out + t * outStride
    const from = expertOut + t * k * expertStride
    const weight = weights + ((t * k) << 2)
    const sharedRow = shared + t * sharedStride
    const sharedWeight = f32x4.splat(sigmoid1(load<f32>(gate + t * gateStride)))
    for (let c = <usize>colBegin << 2, end = <usize>colEnd << 2; c < end; c += 16) {
      let sum = f32x4.splat(0)
      let row = from + c
      for (let rank: usize = 0; rank < <usize>k; rank++) {
        sum = madd(v128.load32_splat(weight + (rank << 2)), v128.load(row), sum)
        row += expertStride
      }
      v128.store(to + c, madd(sharedWeight, v128.load(sharedRow + c), sum))
    }
  }
}
