// Plain float weights × float32 activations: four accumulators of four lanes over blocks of sixteen columns, then blocks
// of four into the first, then single columns.
import { halfToFloat4, loadFloats4, madd, sumLanes } from './simd'

export function matmulPlain(
  out: usize, outStride: usize, outIndex: usize, weight: usize, type: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, x: usize, xStride: usize, xIndex: usize, tokens: i32,
): void {
  const rowBytes = <usize>cols << (type == 2 ? 2 : 1)
  for (let row = rowBegin; row < rowEnd; row++) {
    const w = weight + <usize>row * rowBytes
    for (let t = 0; t < tokens; t++) {
      const from = xIndex ? load<u32>(xIndex + (<usize>t << 2)) : t
      const to = outIndex ? load<u32>(outIndex + (<usize>t << 2)) : t
      const vector = x + <usize>from * xStride
      let dot: f32
      if (type == 0) dot = rowDot<u16>(w, cols, vector)
      else if (type == 1) dot = rowDot<i16>(w, cols, vector)
      else dot = rowDot<f32>(w, cols, vector)
      store<f32>(out + <usize>to * outStride + (<usize>row << 2), dot)
    }
  }
}

/** W: u16 is BF16, i16 is F16, f32 itself. */
function rowDot<W>(w: usize, cols: i32, x: usize): f32 {
  const size = sizeof<W>()
  let sum0 = f32x4.splat(0)
  let sum1 = f32x4.splat(0)
  let sum2 = f32x4.splat(0)
  let sum3 = f32x4.splat(0)
  let c = 0
  for (; c + 16 <= cols; c += 16) {
    sum0 = madd(load4<W>(w), v128.load(x), sum0)
    sum1 = madd(load4<W>(w + 4 * size), v128.load(x, 16), sum1)
    sum2 = madd(load4<W>(w + 8 * size), v128.load(x, 32), sum2)
    sum3 = madd(load4<W>(w + 12 * size), v128.load(x, 48), sum3)
    w += 16 * size
    x += 64
  }
  for (; c + 4 <= cols; c += 4) {
    sum0 = madd(load4<W>(w), v128.load(x), sum0)
    w += 4 * size
    x += 16
  }
  let total = sumLanes(f32x4.add(f32x4.add(sum0, sum1), f32x4.add(sum2, sum3)))
  for (; c < cols; c++) {
    total += load1<W>(w) * load<f32>(x)
    w += size
    x += 4
  }
  return total
}

// @ts-ignore: decorator
@inline
function load4<W>(address: usize): v128 {
  if (isFloat<W>()) return v128.load(address)
  return loadFloats4(address, isSigned<W>())
}

// @ts-ignore: decorator
@inline
function load1<W>(address: usize): f32 {
  if (isFloat<W>()) return load<f32>(address)
  const raw = load<u16>(address)
  if (isSigned<W>()) return f32x4.extract_lane(halfToFloat4(i32x4.splat(raw)), 0)
  return reinterpret<f32>(<u32>raw << 16)
}
