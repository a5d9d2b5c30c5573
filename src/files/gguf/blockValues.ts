// The values of quantized GGUF blocks, all types in one form: small signed integers, and for each group of 16 or 32 of them a
// scale and perhaps a bias, w = scale * code + bias. Products of scales are exact in float32, so a value is rounded once,
// and is the same to the bit as from any other reader. Each type has its own order of bits in a block; nothing else here.
import { IQ4_BOOK, MXFP4_BOOK } from '../../model/blockFormats.js'
import { float16ToFloat32 } from '../../model/floats.js'

export interface BlockForm {
  readonly group: 16 | 32
  /** The smallest code is -offset. */
  readonly offset: number
  readonly hasBias: boolean
  readonly unpack: (block: Uint8Array, at: number, out: Codes, value: number) => void
  readonly products: Products | null
}

/** Scales that are a half of the block times small integers, and biases likewise, taken away. */
export interface Products {
  readonly factorAt: number // bytes from the block's start to the half
  readonly minimaAt: number | null // the same for biases
  /** The integers of the block's groups. */
  readonly integers: (block: Uint8Array, at: number, scales: Int8Array, minima: Int8Array) => void
}

/** Where codes go: that of value i to `codes[i]`, the scale of its group to `scales[i / group]`. */
export interface Codes {
  readonly codes: Int8Array
  readonly scales: Float32Array
  readonly biases: Float32Array // zeros where the type has none
}

let halves: Float32Array | null = null

/** A half by its bits, from a table: each block and each group has one. */
export function widenHalf(bits: number): number {
  halves ??= Float32Array.from({ length: 65_536 }, (_, each) => float16ToFloat32(each))
  return halves[bits]
}

function half(bytes: Uint8Array, at: number): number {
  return widenHalf(bytes[at] | (bytes[at + 1] << 8))
}

function unpackQ40(block: Uint8Array, at: number, { codes, scales }: Codes, value: number): void {
  scales[value >>> 5] = half(block, at)
  for (let j = 0; j < 16; j++) {
    const byte = block[at + 2 + j]
    codes[value + j] = (byte & 15) - 8
    codes[value + 16 + j] = (byte >>> 4) - 8
  }
}

function unpackQ41(block: Uint8Array, at: number, { codes, scales, biases }: Codes, value: number): void {
  scales[value >>> 5] = half(block, at)
  biases[value >>> 5] = half(block, at + 2)
  for (let j = 0; j < 16; j++) {
    const byte = block[at + 4 + j]
    codes[value + j] = byte & 15
    codes[value + 16 + j] = byte >>> 4
  }
}

/** Sixteen bytes of low bits, and a word of which each bit is the fifth of a code. */
function unpackFiveBits(block: Uint8Array, high: number, low: number, codes: Int8Array, value: number, offset: number) {
  const bits = block[high] | (block[high + 1] << 8) | (block[high + 2] << 16) | (block[high + 3] << 24)
  for (let j = 0; j < 16; j++) {
    const byte = block[low + j]
    codes[value + j] = ((byte & 15) | (((bits >>> j) & 1) << 4)) - offset
    codes[value + 16 + j] = ((byte >>> 4) | (((bits >>> (j + 16)) & 1) << 4)) - offset
  }
}

function unpackQ50(block: Uint8Array, at: number, { codes, scales }: Codes, value: number): void {
  scales[value >>> 5] = half(block, at)
  unpackFiveBits(block, at + 2, at + 6, codes, value, 16)
}

function unpackQ51(block: Uint8Array, at: number, { codes, scales, biases }: Codes, value: number): void {
  scales[value >>> 5] = half(block, at)
  biases[value >>> 5] = half(block, at + 2)
  unpackFiveBits(block, at + 4, at + 8, codes, value, 0)
}

function unpackQ80(block: Uint8Array, at: number, { codes, scales }: Codes, value: number): void {
  scales[value >>> 5] = half(block, at)
  for (let j = 0; j < 32; j++) codes[value + j] = block[at + 2 + j]
}

const Q2_K: Products = {
  factorAt: 80,
  minimaAt: 82,
  integers(block, at, scales, minima) {
    for (let g = 0; g < 16; g++) {
      scales[g] = block[at + g] & 15
      minima[g] = block[at + g] >>> 4
    }
  },
}

/** 128 values share 32 bytes, two bits each; sixteen of them a scale. */
function unpackQ2K(block: Uint8Array, at: number, { codes }: Codes, value: number): void {
  for (let g = 0; g < 16; g++) {
    const from = at + 16 + (g >>> 3) * 32 + (g & 1) * 16
    const shift = ((g >>> 1) & 3) * 2
    for (let j = 0; j < 16; j++) codes[value + g * 16 + j] = (block[from + j] >>> shift) & 3
  }
}

const Q3_K: Products = {
  factorAt: 108,
  minimaAt: null,
  integers(block, at, scales) {
    for (let g = 0; g < 16; g++) {
      const low = block[at + 96 + (g & 7)] >>> (g < 8 ? 0 : 4)
      const high = block[at + 104 + (g & 3)] >>> ((g >>> 2) * 2)
      scales[g] = ((low & 15) | ((high & 3) << 4)) - 32
    }
  },
}

function unpackQ3K(block: Uint8Array, at: number, { codes }: Codes, value: number): void {
  for (let g = 0; g < 16; g++) {
    const from = at + 32 + (g >>> 3) * 32 + (g & 1) * 16
    const shift = ((g >>> 1) & 3) * 2
    const third = 1 << ((g >>> 3) * 4 + ((g >>> 1) & 3))
    for (let j = 0; j < 16; j++) {
      const isHigh = (block[at + (g & 1) * 16 + j] & third) !== 0
      codes[value + g * 16 + j] = ((block[from + j] >>> shift) & 3) - (isHigh ? 0 : 4)
    }
  }
}

/** Eight scales and eight biases of six bits in twelve bytes. */
const Q4_K: Products = {
  factorAt: 0,
  minimaAt: 2,
  integers(block, at, scales, minima) {
    const from = at + 4
    for (let g = 0; g < 4; g++) {
      scales[g] = block[from + g] & 63
      minima[g] = block[from + 4 + g] & 63
      scales[g + 4] = (block[from + 8 + g] & 15) | ((block[from + g] >>> 6) << 4)
      minima[g + 4] = (block[from + 8 + g] >>> 4) | ((block[from + 4 + g] >>> 6) << 4)
    }
  },
}

function unpackQ4K(block: Uint8Array, at: number, { codes }: Codes, value: number): void {
  for (let chunk = 0; chunk < 4; chunk++) {
    const from = at + 16 + chunk * 32
    const to = value + chunk * 64
    for (let j = 0; j < 32; j++) {
      codes[to + j] = block[from + j] & 15
      codes[to + 32 + j] = block[from + j] >>> 4
    }
  }
}

function unpackQ5K(block: Uint8Array, at: number, { codes }: Codes, value: number): void {
  for (let chunk = 0; chunk < 4; chunk++) {
    const from = at + 48 + chunk * 32
    const to = value + chunk * 64
    for (let j = 0; j < 32; j++) {
      const fifth = block[at + 16 + j] >>> (chunk * 2)
      codes[to + j] = (block[from + j] & 15) | ((fifth & 1) << 4)
      codes[to + 32 + j] = (block[from + j] >>> 4) | ((fifth & 2) << 3)
    }
  }
}

const Q6_K: Products = {
  factorAt: 208,
  minimaAt: null,
  integers(block, at, scales) {
    for (let g = 0; g < 16; g++) scales[g] = block[at + 192 + g]
  },
}

function unpackQ6K(block: Uint8Array, at: number, { codes }: Codes, value: number): void {
  for (let part = 0; part < 2; part++) {
    const low = at + part * 64
    const high = at + 128 + part * 32
    const to = value + part * 128
    for (let j = 0; j < 32; j++) {
      const upper = block[high + j]
      codes[to + j] = ((block[low + j] & 15) | ((upper & 3) << 4)) - 32
      codes[to + 32 + j] = ((block[low + 32 + j] & 15) | ((upper & 12) << 2)) - 32
      codes[to + 64 + j] = ((block[low + j] >>> 4) | (upper & 48)) - 32
      codes[to + 96 + j] = ((block[low + 32 + j] >>> 4) | ((upper & 192) >>> 2)) - 32
    }
  }
}

function unpackCodebook(block: Uint8Array, from: number, book: Int8Array, codes: Int8Array, value: number): void {
  for (let j = 0; j < 16; j++) {
    codes[value + j] = book[block[from + j] & 15]
    codes[value + 16 + j] = book[block[from + j] >>> 4]
  }
}

function unpackIq4Nl(block: Uint8Array, at: number, { codes, scales }: Codes, value: number): void {
  scales[value >>> 5] = half(block, at)
  unpackCodebook(block, at + 2, IQ4_BOOK, codes, value)
}

const IQ4_XS: Products = {
  factorAt: 0,
  minimaAt: null,
  integers(block, at, scales) {
    const high = block[at + 2] | (block[at + 3] << 8)
    for (let g = 0; g < 8; g++) {
      const low = block[at + 4 + (g >>> 1)] >>> ((g & 1) * 4)
      scales[g] = ((low & 15) | (((high >>> (2 * g)) & 3) << 4)) - 32
    }
  },
}

function unpackIq4Xs(block: Uint8Array, at: number, { codes }: Codes, value: number): void {
  for (let g = 0; g < 8; g++) unpackCodebook(block, at + 8 + g * 16, IQ4_BOOK, codes, value + g * 32)
}

function unpackMxfp4(block: Uint8Array, at: number, { codes, scales }: Codes, value: number): void {
  scales[value >>> 5] = 2 ** (block[at] - 128)
  unpackCodebook(block, at + 1, MXFP4_BOOK, codes, value)
}

type Unpack = BlockForm['unpack']

/** Offsets that are not 0 are powers of two: a scale times them has the scale's own digits. */
function form(group: 16 | 32, offset: number, unpack: Unpack, hasBias = false): BlockForm {
  return { group, offset, hasBias, unpack, products: null }
}

function productForm(group: 16 | 32, offset: number, unpack: Unpack, products: Products): BlockForm {
  return { group, offset, hasBias: products.minimaAt !== null, unpack, products }
}

/** By the type's name. */
export const BLOCK_FORMS: ReadonlyMap<string, BlockForm> = new Map([
  ['Q4_0', form(32, 8, unpackQ40)],
  ['Q4_1', form(32, 0, unpackQ41, true)],
  ['Q5_0', form(32, 16, unpackQ50)],
  ['Q5_1', form(32, 0, unpackQ51, true)],
  ['Q8_0', form(32, 128, unpackQ80)],
  ['Q2_K', productForm(16, 0, unpackQ2K, Q2_K)],
  ['Q3_K', productForm(16, 4, unpackQ3K, Q3_K)],
  ['Q4_K', productForm(32, 0, unpackQ4K, Q4_K)],
  ['Q5_K', productForm(32, 0, unpackQ5K, Q4_K)],
  ['Q6_K', productForm(16, 32, unpackQ6K, Q6_K)],
  ['IQ4_NL', form(32, 128, unpackIq4Nl)],
  ['IQ4_XS', productForm(32, 128, unpackIq4Xs, IQ4_XS)],
  ['MXFP4', form(32, 16, unpackMxfp4)],
])

/** Room for the codes of so many values. */
export function allocateCodes(values: number, group: 16 | 32): Codes {
  const groups = values / group
  return { codes: new Int8Array(values), scales: new Float32Array(groups), biases: new Float32Array(groups) }
}

/** Unpacks whole blocks from the start of `bytes` until `out` is full. */
export function unpackBlocks(
  form: BlockForm,
  type: { readonly blockValues: number; readonly blockBytes: number },
  bytes: Uint8Array,
  out: Codes,
): void {
  const { blockValues, blockBytes } = type
  let at = 0
  for (let value = 0; value < out.codes.length; value += blockValues) {
    form.unpack(bytes, at, out, value)
    if (form.products !== null) multiply(form.products, bytes, at, out, value / form.group, blockValues / form.group)
    at += blockBytes
  }
}

const integers = { scales: new Int8Array(16), minima: new Int8Array(16) }

/** Scales and biases of a block's groups. */
function multiply(products: Products, bytes: Uint8Array, at: number, out: Codes, group: number, groups: number): void {
  products.integers(bytes, at, integers.scales, integers.minima)
  const factor = half(bytes, at + products.factorAt)
  for (let g = 0; g < groups; g++) out.scales[group + g] = factor * integers.scales[g]
  if (products.minimaAt === null) return
  const ofMinima = half(bytes, at + products.minimaAt)
  for (let g = 0; g < groups; g++) out.biases[group + g] = -(ofMinima * integers.minima[g])
}

/** The values themselves. */
export function valuesOfCodes(form: BlockForm, { codes, scales, biases }: Codes, out: Float32Array): void {
  const { group, hasBias } = form
  for (let g = 0; g < scales.length; g++) {
    const scale = scales[g]
    const bias = biases[g]
    // Without a bias nothing is added: 0 times a negative scale is -0.
    if (hasBias) for (let i = g * group; i < (g + 1) * group; i++) out[i] = scale * codes[i] + bias
    else for (let i = g * group; i < (g + 1) * group; i++) out[i] = scale * codes[i]
  }
}
