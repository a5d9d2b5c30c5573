// What is stored of a matrix, checked against the shape that it must have: floats, a quantized weight with its scales and
// biases, or a weight in blocks with its scales. Who lists the parts, a file of tensors or the parts table of an expert, says
// where they are. Reads nothing.
import { TensorError } from '../base/errors.js'
import { blockFormat, blockScaleBytes, blockSizes, checkBlock } from './blockFormats.js'
import type { FloatType } from './floats.js'
import { FLOAT_BYTES } from './floats.js'
import { QUANT_BITS, QUANT_GROUPS, quantizedSizes } from './quantize.js'
import type { ByteRange, Matrix, QuantBits, QuantGroup } from './tensors.js'

type MatrixPart = 'weight' | 'scales' | 'biases'

export interface StoredPart {
  readonly shape: readonly number[]
  readonly dtype: string
  readonly bits: number // of a U32 weight
  readonly group: number
  readonly block?: string // of a U32 weight in blocks: a name of blockFormats.ts
  readonly span?: number
}

export interface MatrixParts {
  /** Throws where there is none, or more than one. */
  find(part: MatrixPart): StoredPart
  /** Where the part lies; throws where it has not so many bytes. */
  range(part: MatrixPart, size: number): ByteRange
}

export function storedMatrix(name: string, rows: number, cols: number, parts: MatrixParts): Matrix {
  const place = (part: MatrixPart, width: number, size: number): ByteRange => {
    checkShape(`${name}.${part}`, parts.find(part).shape, [rows, width])
    return parts.range(part, size)
  }
  const weight = parts.find('weight')
  if (weight.dtype !== 'U32') {
    const type = floatType(`${name}.weight`, weight.dtype, 'U32, BF16, F16 or F32')
    return { kind: 'plain', name, rows, cols, type, weight: place('weight', cols, rows * cols * FLOAT_BYTES[type]) }
  }
  const scales = parts.find('scales')
  if (weight.block !== undefined) {
    const { block, span } = checkBlock(`${name}.weight`, weight.block, weight.span, cols)
    const format = blockFormat(block)
    if (scales.dtype !== 'U8') throw new TensorError(`${name}.scales`, `the dtype is ${scales.dtype}, want U8`)
    const sizes = blockSizes(rows, cols, format, span)
    return {
      ...{ kind: 'blocks', name, rows, cols, block, span },
      weight: place('weight', (cols * format.bits) / 32, sizes.weight),
      scales: place('scales', blockScaleBytes(format, span, cols), sizes.scales),
    }
  }
  const { bits, group } = quantization(`${name}.weight`, weight, cols)
  const scaleType = floatType(`${name}.scales`, scales.dtype, 'BF16 or F16')
  if (scaleType === 'F32') throw new TensorError(`${name}.scales`, 'the dtype is F32, want BF16 or F16')
  const biases = parts.find('biases')
  if (biases.dtype !== scaleType) {
    throw new TensorError(`${name}.biases`, `the dtype is ${biases.dtype}, want ${scaleType} as the scales have`)
  }
  const sizes = quantizedSizes(rows, cols, bits, group)
  return {
    ...{ kind: 'quantized', name, rows, cols, bits, group, scaleType },
    weight: place('weight', (cols * bits) / 32, sizes.weight),
    scales: place('scales', cols / group, sizes.scales),
    biases: place('biases', cols / group, sizes.biases),
  }
}

export function floatType(name: string, dtype: string, wanted = 'BF16, F16 or F32'): FloatType {
  if (dtype !== 'BF16' && dtype !== 'F16' && dtype !== 'F32') {
    throw new TensorError(name, `the dtype is ${dtype}, want ${wanted}`)
  }
  return dtype
}

function checkShape(name: string, shape: readonly number[], want: readonly number[]): void {
  if (shape.length === want.length && shape.every((dim, i) => dim === want[i])) return
  throw new TensorError(name, `the shape is [${shape}], want [${want}]`)
}

function quantization(name: string, weight: StoredPart, cols: number): { bits: QuantBits; group: QuantGroup } {
  const bits = weight.bits as QuantBits
  const group = weight.group as QuantGroup
  if (!QUANT_BITS.includes(bits)) throw new TensorError(name, `has ${bits} bits, want 2, 4 or 8`)
  if (!QUANT_GROUPS.includes(group)) throw new TensorError(name, `has groups of ${group}, want 32, 64 or 128`)
  if (cols % group !== 0) throw new TensorError(name, `${cols} columns are not a multiple of the group of ${group}`)
  return { bits, group }
}
