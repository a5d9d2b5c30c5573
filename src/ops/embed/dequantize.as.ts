// Rows of weights as floats, bit by bit what spec and reference say: scale · q is exact, so the sum is rounded once.
import { halfToFloat4 } from '../assembly/simd.as'

export function dequantizeRow(
  out: usize, weight: usize, scales: usize, biases: usize, scaleType: i32, bits: i32, group: i32, cols: i32, row: i32,
): void {
  const words = weight + <usize>row * ((<usize>cols * bits) >> 3)
  const groups = cols / group
  const s = scales + (<usize>row * groups << 1)
  const b = biases + (<usize>row * groups << 1)
  const perWord = 32 / bits
  const mask = (1 << bits) - 1
  for (let g = 0; g < groups; g++) {
    const scale = float16(s + (<usize>g << 1), scaleType)
    const bias = float16(b + (<usize>g << 1), scaleType)
    for (let c = g * group, end = c + group; c < end; c += perWord) {
      let word = load<u32>(words + ((<usize>c * bits) >> 3))
      for (let k = 0; k < perWord; k++) {
        store<f32>(out + (<usize>(c + k) << 2), scale * <f32>(word & mask) + bias)
        word >>= bits
      }
    }
  }
}

export function convertFloats(out: usize, source: usize, type: i32, count: i32): void {
  if (type == 2) {
    memory.copy(out, source, <usize>count << 2)
    return
  }
  for (let i: usize = 0; i < <usize>count; i++) store<f32>(out + (i << 2), float16(source + (i << 1), type))
}

// @ts-ignore: decorator
@inline
function float16(address: usize, type: i32): f32 {
  const raw = load<u16>(address)
  return type == 0 ? reinterpret<f32>(<u32>raw << 16) : f32x4.extract_lane(halfToFloat4(i32x4.splat(raw)), 0)
}
