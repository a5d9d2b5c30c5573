// Plain float weights × float32 activations: blocks of 32 columns in eight vectors meet one input or a tile of them (see
// matmulFast and matmulExact), then what is left in fours and ones.
import { dot32, halfToFloat4, loadFloats4, madd, sumLanes } from '../assembly/simd.as'
import { storeAddresses, TILE_ACCUMULATORS, TILE_ADDRESSES, TOKEN_TILE } from './layout.as'

export function matmulPlain(
  out: usize, outStride: usize, outIndex: usize, weight: usize, type: i32, cols: i32,
  rowBegin: i32, rowEnd: i32, x: usize, xStride: usize, xIndex: usize, tokens: i32, scratch: usize,
): void {
  for (let first = 0; first < tokens; first += TOKEN_TILE) {
    const count = min(TOKEN_TILE, tokens - first)
    storeAddresses(out, outStride, outIndex, x, xStride, xIndex, first, count, scratch)
    if (type == 0) rows<u16>(weight, cols, rowBegin, rowEnd, count, scratch)
    else if (type == 1) rows<i16>(weight, cols, rowBegin, rowEnd, count, scratch)
    else rows<f32>(weight, cols, rowBegin, rowEnd, count, scratch)
  }
}

/** W: u16 is BF16, i16 is F16, f32 itself. Addresses of inputs and outputs are in scratch. */
export function rows<W>(weight: usize, cols: i32, rowBegin: i32, rowEnd: i32, tokens: i32, scratch: usize): void {
  const size = sizeof<W>()
  const accumulators = scratch + TILE_ACCUMULATORS
  const tileEnd = scratch + (<usize>tokens << 2)
  const whole = <usize>(cols & ~31)
  for (let row = <usize>rowBegin; row < <usize>rowEnd; row++) {
    const w = weight + row * <usize>cols * size
    memory.fill(accumulators, 0, <usize>tokens << 4)
    for (let c: usize = 0; c < whole; c += 32) {
      const at = w + c * size
      const w0 = load4<W>(at)
      const w1 = load4<W>(at + 4 * size)
      const w2 = load4<W>(at + 8 * size)
      const w3 = load4<W>(at + 12 * size)
      const w4 = load4<W>(at + 16 * size)
      const w5 = load4<W>(at + 20 * size)
      const w6 = load4<W>(at + 24 * size)
      const w7 = load4<W>(at + 28 * size)
      let accumulator = accumulators
      let address = scratch
      do {
        const sum = dot32(w0, w1, w2, w3, w4, w5, w6, w7, <usize>load<u32>(address) + (c << 2))
        v128.store(accumulator, f32x4.add(v128.load(accumulator), sum))
        accumulator += 16
        address += 4
      } while (address < tileEnd)
    }
    for (let t: usize = 0; t < <usize>tokens; t++) {
      const x = <usize>load<u32>(scratch + (t << 2))
      let sum = v128.load(accumulators + (t << 4))
      let c = whole
      for (; c + 4 <= <usize>cols; c += 4) sum = madd(load4<W>(w + c * size), v128.load(x + (c << 2)), sum)
      let total = sumLanes(sum)
      for (; c < <usize>cols; c++) total += load1<W>(w + c * size) * load<f32>(x + (c << 2))
      store<f32>(<usize>load<u32>(scratch + (t << 2), TILE_ADDRESSES) + (row << 2), total)
    }
  }
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
