// Matrices of random blocks: any code, any scale that a format has, small enough to multiply.
import {
  type BlockFormat,
  type BlockSpan,
  blockSizes,
  dequantizeBlocks,
  isBlockSpan,
} from '#moeflux/model/blockFormats.js'
import { seededRandom } from '../random.js'

export interface RandomBlocks {
  readonly format: BlockFormat
  readonly span: BlockSpan
  readonly rows: number
  readonly cols: number
  readonly weight: Uint8Array
  readonly scales: Uint8Array
  readonly values: Float32Array // [rows, cols]
}

export function randomBlocks(
  format: BlockFormat,
  span: BlockSpan,
  rows: number,
  cols: number,
  seed: number,
): RandomBlocks {
  if (!isBlockSpan(format, span, cols)) throw new Error(`${cols} columns in spans of ${span}`)
  const random = seededRandom(seed)
  const sizes = blockSizes(rows, cols, format, span)
  const weight = Uint8Array.from({ length: sizes.weight }, () => random() * 256)
  // Codes of 8 bits are those that the format has.
  if (format.bits === 8) for (let i = 0; i < weight.length; i++) weight[i] %= format.offset === 32 ? 64 : 32
  const scales = new Uint8Array(sizes.scales)
  const half = (at: number) => {
    scales[at] = random() * 256
    scales[at + 1] = (random() < 0.5 ? 0x80 : 0) | (0x20 + random() * 8) // 2^-7 to 2^-5
  }
  if (format.scale === 'E8M0') for (let i = 0; i < scales.length; i++) scales[i] = 118 + random() * 6
  else if (format.scale === 'F16') for (let i = 0; i < scales.length; i += 2) half(i)
  else {
    const groups = span / format.group
    const bytes = (format.hasMinima ? 2 : 1) * (2 + groups)
    for (let at = 0; at < scales.length; at += bytes) {
      for (let i = 0; i < bytes; i++) scales[at + i] = (random() < 0.5 ? 0 : 256 - 64) + random() * 64
      half(at)
      if (format.hasMinima) half(at + 2)
    }
  }
  const values = new Float32Array(rows * cols)
  dequantizeBlocks(format, span, weight, scales, values)
  return { format, span, rows, cols, weight, scales, values }
}
