// Causal depthwise convolution of width 4 with SiLU. Four channels at a time walk over the tokens with the last three
// inputs in registers.
import { silu4 } from '../assembly/simd.as'

export function conv1dSilu(
  out: usize, outStride: usize, x: usize, xStride: usize, stateIn: usize, stateOut: usize, taps: usize,
  channels: i32, tokens: i32, channelBegin: i32, channelEnd: i32,
): void {
  const row = <usize>channels << 2
  let c = <usize>channelBegin << 2
  const end = <usize>channelEnd << 2
  if (c >= end) return
  do {
    const tap0 = v128.load(taps + c)
    const tap1 = v128.load(taps + c + row)
    const tap2 = v128.load(taps + c + row * 2)
    const tap3 = v128.load(taps + c + row * 3)
    let x0 = v128.load(stateIn + c)
    let x1 = v128.load(stateIn + c + row)
    let x2 = v128.load(stateIn + c + row * 2)
    let from = x + c
    let to = out + c
    if (tokens > 0) {
      const last = from + <usize>(tokens - 1) * xStride
      do {
        const x3 = v128.load(from)
        const older = f32x4.add(f32x4.mul(x0, tap0), f32x4.mul(x1, tap1))
        const newer = f32x4.add(f32x4.mul(x2, tap2), f32x4.mul(x3, tap3))
        v128.store(to, silu4(f32x4.add(older, newer)))
        x0 = x1
        x1 = x2
        x2 = x3
        from += xStride
        to += outStride
      } while (from <= last)
    }
    v128.store(stateOut + c, x0)
    v128.store(stateOut + c + row, x1)
    v128.store(stateOut + c + row * 2, x2)
    c += 16
  } while (c < end)
}
