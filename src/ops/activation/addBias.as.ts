// Biases of products.
import { loadFloats4, loadFloatsTail } from '../assembly/simd.as'

/** Rows that the products have written, so ranges may end anywhere. */
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
