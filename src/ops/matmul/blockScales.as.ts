// A row's scales and minima of weights in blocks as floats, one for each group.
import { loadBytes4, loadPowers4, spanBytes, splatHalf } from './blocks.as'
import { TILE_ACCUMULATORS } from './layout.as'
import { loadFloats4 } from '../assembly/simd.as'

/** Bytes of the floats of one kind: scales, or minima. */
// @ts-ignore: decorator
@inline
export function widenedBytes<G>(cols: i32): usize {
  return <usize>((cols + 127) >> 7) * (512 / (16 * sizeof<G>()))
}

/** A row's scales as floats, then (a row of floats further on) its minima. */
export function widenScales<S, G>(s: usize, span: i32, cols: i32, to: usize, scratch: usize): void {
  const minima = widenedBytes<G>(cols)
  if (sizeof<S>() == 1) {
    const groups = <usize>(span / <i32>(16 * sizeof<G>()))
    const bytes = spanBytes<S, G>(span)
    for (let left = cols / span; left > 0; left--) {
      const factor = splatHalf(s)
      const first = s + (!isSigned<S>() ? 4 : 2)
      const factorOfMinima = !isSigned<S>() ? splatHalf(s + 2) : factor
      for (let g: usize = 0; g < groups; g += 4) {
        v128.store(to, f32x4.mul(loadBytes4(first + g), factor))
        if (!isSigned<S>()) v128.store(to + minima, f32x4.mul(loadBytes4(first + groups + g), factorOfMinima))
        to += 16
      }
      s += bytes
    }
    return
  }
  for (let left = cols >> 7; left > 0; left--) {
    v128.store(to, sizeof<S>() == 2 ? loadFloats4(s, true) : loadPowers4(s))
    s += sizeof<S>() == 2 ? 8 : 4
    to += 16
  }
  if (cols & 127) {
    const tail = scratch + TILE_ACCUMULATORS
    v128.store(tail, i32x4.splat(0))
    for (let i: usize = 0; i < <usize>((cols & 127) >> 5); i++) {
      if (sizeof<S>() == 2) store<u16>(tail + (i << 1), load<u16>(s + (i << 1)))
      else store<u8>(tail + i, load<u8>(s + i))
    }
    v128.store(to, sizeof<S>() == 2 ? loadFloats4(tail, true) : loadPowers4(tail))
  }
}
