// Weights in blocks: small codes and, for each group of 16 or 32 of them, a scale that may itself be the product of a small
// integer and a half of a longer span; w = scale * code - minimum. So GGUF's K types and the codebooks (IQ4, MXFP4) keep
// their values to the bit, in few more bits than they had. A format is one entry here; kernels know it by its code.
//
// A row of codes is packed like affine weights. A row of scales is, span by span,
//   product: half factor, half factor of minima where there are any, int8 [span / group] scales, int8 [span / group] minima
//   F16: half; E8M0: one byte e, which is 2^(e - 128). There a span is one group.
import { TensorError } from '../base/errors.js'
import { float16ToFloat32 } from './floats.js'

export type BlockName = 'mxfp4' | 'iq4_nl' | 'iq4_xs' | 'q2_k' | 'q3_k' | 'q4_k' | 'q5_k' | 'q6_k'

export interface BlockFormat {
  readonly name: BlockName
  readonly kernel: number // what kernels call it
  readonly bits: 2 | 4 | 8 // of a stored code
  readonly group: 16 | 32
  readonly scale: 'product' | 'F16' | 'E8M0'
  readonly hasMinima: boolean
  /** The code that a stored number means; absent: the number less `offset`. */
  readonly book: Int8Array | null
  readonly offset: number
}

/** Columns that share a half factor; 0 where scales are no products. */
export type BlockSpan = 0 | 128 | 256

export const IQ4_BOOK = Int8Array.of(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
/** Twice the sixteen numbers of four bits with an exponent of two. */
export const MXFP4_BOOK = Int8Array.of(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

const product = { scale: 'product', book: null, offset: 0 } as const
const book = { bits: 4, group: 32, hasMinima: false, offset: 0 } as const

const FORMATS: readonly BlockFormat[] = [
  { name: 'mxfp4', kernel: 1, ...book, scale: 'E8M0', book: MXFP4_BOOK },
  { name: 'iq4_nl', kernel: 2, ...book, scale: 'F16', book: IQ4_BOOK },
  { name: 'iq4_xs', kernel: 3, ...book, scale: 'product', book: IQ4_BOOK },
  { name: 'q2_k', kernel: 4, bits: 2, group: 16, ...product, hasMinima: true },
  { name: 'q3_k', kernel: 5, bits: 4, group: 16, ...product, hasMinima: false, offset: 4 },
  { name: 'q4_k', kernel: 6, bits: 4, group: 32, ...product, hasMinima: true },
  { name: 'q5_k', kernel: 7, bits: 8, group: 32, ...product, hasMinima: true },
  { name: 'q6_k', kernel: 8, bits: 8, group: 16, ...product, hasMinima: false, offset: 32 },
]

/** Of a name that was checked where it was read. */
export function blockFormat(name: BlockName): BlockFormat {
  return BLOCK_FORMATS.get(name) as BlockFormat
}

export const BLOCK_FORMATS: ReadonlyMap<string, BlockFormat> = new Map(FORMATS.map(format => [format.name, format]))

/** What kernels add to stored numbers to make them positive codes, times -1: sums of inputs are multiplied by it. */
export function blockShift({ book, offset, hasMinima }: BlockFormat): number {
  if (hasMinima) return -1
  return book === null ? -offset : Math.min(...book)
}

/** Whether sums of half a group's codes times int8 fit 16 bits, if only the shift is taken back before they are widened. */
export function hasLaneSums({ book, offset, bits, group, hasMinima }: BlockFormat): boolean {
  if (hasMinima || (bits === 4 && group === 16)) return false // nothing is shifted, or two groups share their vectors
  const largest = book === null ? offset : Math.max(...book.map(Math.abs))
  return largest * (group / 2) * 127 < 2 ** 15
}

/** Whether kernels take the codes as they take affine ones of four bits in groups of 32. */
export function isNibbles({ bits, group }: BlockFormat): boolean {
  return bits === 4 && group === 32
}

/** Bytes of the scales of a row. */
export function blockScaleBytes({ scale, group, hasMinima }: BlockFormat, span: BlockSpan, cols: number): number {
  if (scale !== 'product') return (cols / group) * (scale === 'F16' ? 2 : 1)
  return (cols / span) * (hasMinima ? 2 : 1) * (2 + span / group)
}

export interface BlockSizes {
  readonly weight: number // bytes
  readonly scales: number // bytes
}

export function blockSizes(rows: number, cols: number, format: BlockFormat, span: BlockSpan): BlockSizes {
  return { weight: (rows * cols * format.bits) / 8, scales: rows * blockScaleBytes(format, span, cols) }
}

/** Whether rows of so many columns can be cut into these spans. */
export function isBlockSpan({ scale, group }: BlockFormat, span: number, cols: number): span is BlockSpan {
  if (scale !== 'product') return span === 0 && cols % group === 0
  return (span === 128 || span === 256) && cols % span === 0
}

/** A format and a span that are known, and rows that they fit. */
export function checkBlock(
  name: string,
  block: string | undefined,
  span: number | undefined,
  cols: number,
): { block: BlockName; span: BlockSpan } {
  const format = BLOCK_FORMATS.get(block ?? '')
  if (format === undefined) {
    throw new TensorError(name, `is in blocks of ${block}, want one of ${[...BLOCK_FORMATS.keys()].join(', ')}`)
  }
  const wanted = span ?? 0
  if (!isBlockSpan(format, wanted, cols)) {
    throw new TensorError(name, `${cols} columns cannot be cut into ${format.name} blocks with spans of ${wanted}`)
  }
  return { block: format.name, span: wanted }
}

/** Scales and minima of rows, group by group. */
export interface BlockScales {
  readonly scales: Float32Array // [rows, cols / group]
  readonly minima: Float32Array // [rows, cols / group], or empty
}

export function widenBlockScales(format: BlockFormat, span: BlockSpan, bytes: Uint8Array, groups: number): BlockScales {
  const scales = new Float32Array(groups)
  const minima = new Float32Array(format.hasMinima ? groups : 0)
  const half = (at: number) => float16ToFloat32(bytes[at] | (bytes[at + 1] << 8))
  if (format.scale === 'E8M0') for (let g = 0; g < groups; g++) scales[g] = 2 ** (bytes[g] - 128)
  else if (format.scale === 'F16') for (let g = 0; g < groups; g++) scales[g] = half(2 * g)
  else {
    const perSpan = span / format.group
    let at = 0
    for (let g = 0; g < groups; g += perSpan) {
      const factor = half(at)
      const factorOfMinima = format.hasMinima ? half(at + 2) : 0
      at += format.hasMinima ? 4 : 2
      for (let i = 0; i < perSpan; i++) scales[g + i] = factor * ((bytes[at + i] << 24) >> 24)
      at += perSpan
      if (!format.hasMinima) continue
      for (let i = 0; i < perSpan; i++) minima[g + i] = factorOfMinima * ((bytes[at + i] << 24) >> 24)
      at += perSpan
    }
  }
  return { scales, minima }
}

/** Where the first half is that is not finite, or an exponent that means NaN; -1 where all are well. */
export function firstBrokenScale({ scale, group, hasMinima }: BlockFormat, span: BlockSpan, bytes: Uint8Array): number {
  if (scale === 'E8M0') return bytes.indexOf(255)
  const isBroken = (at: number) => (bytes[at + 1] & 0x7c) === 0x7c
  const step = scale === 'F16' ? 2 : (hasMinima ? 2 : 1) * (2 + span / group)
  for (let at = 0; at < bytes.length; at += step) {
    if (isBroken(at)) return at
    if (hasMinima && isBroken(at + 2)) return at + 2
  }
  return -1
}

/** The codes of packed rows, as numbers that scales multiply. */
export function unpackBlockCodes<T extends Int8Array | Float32Array | Float64Array>(
  { bits, book, offset }: BlockFormat,
  packed: Uint8Array,
  out: T,
): T {
  const perByte = 8 / bits
  const mask = 2 ** bits - 1
  const meaning = Array.from({ length: 2 ** bits }, (_, q) => (book === null ? q - offset : book[q]))
  for (let i = 0; i < packed.length; i++) {
    for (let n = 0; n < perByte; n++) out[i * perByte + n] = meaning[(packed[i] >> (n * bits)) & mask]
  }
  return out
}

/** Packs codes into bytes, low bits first. */
export function packBlockCodes({ bits, book, offset }: BlockFormat, codes: Int8Array, out: Uint8Array): void {
  const stored = new Uint8Array(256) // by the code's own bits
  for (let q = 2 ** bits - 1; q >= 0; q--) stored[(book === null ? q - offset : book[q]) & 255] = q
  const length = out.length
  let at = 0
  if (bits === 8) for (let i = 0; i < length; i++) out[i] = stored[codes[i] & 255]
  else if (bits === 4) {
    for (let i = 0; i < length; i++, at += 2) out[i] = stored[codes[at] & 255] | (stored[codes[at + 1] & 255] << 4)
  } else {
    for (let i = 0; i < length; i++, at += 4) {
      const low = stored[codes[at] & 255] | (stored[codes[at + 1] & 255] << 2)
      out[i] = low | (stored[codes[at + 2] & 255] << 4) | (stored[codes[at + 3] & 255] << 6)
    }
  }
}

/** The values themselves, rounded once. */
export function dequantizeBlocks(
  format: BlockFormat,
  span: BlockSpan,
  weight: Uint8Array,
  scaleBytes: Uint8Array,
  out: Float32Array,
): void {
  const { group, hasMinima } = format
  unpackBlockCodes(format, weight, out)
  const { scales, minima } = widenBlockScales(format, span, scaleBytes, out.length / group)
  for (let g = 0; g < scales.length; g++) {
    const scale = scales[g]
    const end = (g + 1) * group
    // Without minima nothing is taken away: 0 times a negative scale is -0.
    if (hasMinima) for (let i = g * group; i < end; i++) out[i] = scale * out[i] - minima[g]
    else for (let i = g * group; i < end; i++) out[i] = scale * out[i]
  }
}
