// The weighted sum of a token's experts in the order of its own ranking, then its shared expert: an order that does not
// depend on which experts other tokens took or which was read first. A shared expert that is not there (0) adds nothing, one
// without a gate (0) counts whole.
import { madd, sigmoid1 } from '../assembly/simd.as'

export function combine(
  out: usize, outStride: usize, expertOut: usize, expertStride: usize, weights: usize, k: i32,
  shared: usize, sharedStride: usize, gate: usize, gateStride: usize, tokens: i32, colBegin: i32, colEnd: i32,
): void {
  for (let t: usize = 0; t < <usize>tokens; t++) {
    const to = out + t * outStride
    const from = expertOut + t * k * expertStride
    const weight = weights + ((t * k) << 2)
    // Nothing is added as 0 times what the experts gave.
    const sharedRow = shared == 0 ? from : shared + t * sharedStride
    const plain: f32 = shared == 0 ? 0 : 1
    const sharedWeight = f32x4.splat(gate == 0 ? plain : sigmoid1(load<f32>(gate + t * gateStride)))
    let c = <usize>colBegin << 2
    const end = <usize>colEnd << 2
    const weightEnd = weight + (<usize>k << 2)
    for (; c + 64 <= end; c += 64) {
      let sum0 = f32x4.splat(0)
      let sum1 = f32x4.splat(0)
      let sum2 = f32x4.splat(0)
      let sum3 = f32x4.splat(0)
      let row = from + c
      let w = weight
      do {
        const factor = v128.load32_splat(w)
        sum0 = madd(factor, v128.load(row), sum0)
        sum1 = madd(factor, v128.load(row, 16), sum1)
        sum2 = madd(factor, v128.load(row, 32), sum2)
        sum3 = madd(factor, v128.load(row, 48), sum3)
        row += expertStride
        w += 4
      } while (w < weightEnd)
      v128.store(to + c, madd(sharedWeight, v128.load(sharedRow + c), sum0))
      v128.store(to + c, madd(sharedWeight, v128.load(sharedRow + c, 16), sum1), 16)
      v128.store(to + c, madd(sharedWeight, v128.load(sharedRow + c, 32), sum2), 32)
      v128.store(to + c, madd(sharedWeight, v128.load(sharedRow + c, 48), sum3), 48)
    }
    for (; c < end; c += 16) {
      let sum = f32x4.splat(0)
      let row = from + c
      for (let w = weight; w < weightEnd; w += 4) {
        sum = madd(v128.load32_splat(w), v128.load(row), sum)
        row += expertStride
      }
      v128.store(to + c, madd(sharedWeight, v128.load(sharedRow + c), sum))
    }
  }
}
