// GGUF blocks as the packed folder's weights in blocks (model/blockFormats.ts), which hold their values to the bit: codes in the
// order of columns, scales as the integers and halves that they are products of.
import {
  type BlockFormat,
  type BlockName,
  type BlockSpan,
  blockFormat,
  blockSizes,
  packBlockCodes,
} from '../../model/blockFormats.js'
import { allocateCodes, type BlockForm, unpackBlocks } from './blockValues.js'
import type { GgufType } from './ggufTypes.js'

const NAMES: ReadonlyMap<string, BlockName> = new Map([
  ['MXFP4', 'mxfp4'],
  ['IQ4_NL', 'iq4_nl'],
  ['IQ4_XS', 'iq4_xs'],
  ['Q2_K', 'q2_k'],
  ['Q3_K', 'q3_k'],
  ['Q4_K', 'q4_k'],
  ['Q5_K', 'q5_k'],
  ['Q6_K', 'q6_k'],
])

/** The format of a GGUF type, if it has one. */
export function blockNameOf(typeName: string): BlockName | undefined {
  return NAMES.get(typeName)
}

export interface BlockRows {
  readonly weight: Uint8Array
  readonly scales: Uint8Array
}

/** Whole rows of `cols` columns. */
export function relayBlocks(
  form: BlockForm,
  type: GgufType,
  bytes: Uint8Array,
  cols: number,
  name: BlockName,
  span: BlockSpan,
): BlockRows {
  const format = blockFormat(name)
  const values = (bytes.byteLength / type.blockBytes) * type.blockValues
  const codes = allocateCodes(values, form.group)
  unpackBlocks(form, type, bytes, codes)
  const sizes = blockSizes(values / cols, cols, format, span)
  const out = { weight: new Uint8Array(sizes.weight), scales: new Uint8Array(sizes.scales) }
  packBlockCodes(format, codes.codes, out.weight)
  if (form.products === null) copyScales(format, type, bytes, out.scales)
  else copyProducts(form, type, bytes, span, out.scales)
  return out
}

/** A half or an exponent at the start of each block. */
function copyScales({ scale }: BlockFormat, { blockBytes }: GgufType, bytes: Uint8Array, out: Uint8Array): void {
  const size = scale === 'F16' ? 2 : 1
  for (let from = 0, to = 0; from < bytes.length; from += blockBytes, to += size) {
    for (let i = 0; i < size; i++) out[to + i] = bytes[from + i]
  }
}

/** A block is one span, or several that have its halves each. */
function copyProducts(form: BlockForm, type: GgufType, bytes: Uint8Array, span: BlockSpan, out: Uint8Array): void {
  const products = form.products as NonNullable<BlockForm['products']>
  const { factorAt, minimaAt } = products
  const groups = type.blockValues / form.group
  const perSpan = span / form.group
  const scales = new Int8Array(groups)
  const minima = new Int8Array(groups)
  let to = 0
  for (let from = 0; from < bytes.length; from += type.blockBytes) {
    products.integers(bytes, from, scales, minima)
    for (let g = 0; g < groups; g += perSpan) {
      out[to++] = bytes[from + factorAt]
      out[to++] = bytes[from + factorAt + 1]
      if (minimaAt !== null) {
        out[to++] = bytes[from + minimaAt]
        out[to++] = bytes[from + minimaAt + 1]
      }
      for (let i = 0; i < perSpan; i++) out[to++] = scales[g + i]
      if (minimaAt !== null) for (let i = 0; i < perSpan; i++) out[to++] = minima[g + i]
    }
  }
}
