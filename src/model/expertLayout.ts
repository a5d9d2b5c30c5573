// The byte layout of one expert: up to nine parts back to back, and three biases where the family has them; the same for
// every expert of a layer, and where precision is not mixed for every layer. Records of all layers have one size, that of the
// largest. Built from formats when converting, checked from parts tables when opening. Reads nothing.
import { TensorError } from '../base/errors.js'
import { type BlockName, type BlockSpan, blockFormat, blockScaleBytes, blockSizes } from './blockFormats.js'
import type { ModelConfig } from './config.js'
import type { FloatType } from './floats.js'
import { FLOAT_BYTES } from './floats.js'
import { quantizedSizes } from './quantize.js'
import { storedMatrix } from './storedMatrix.js'
import type { ByteRange, ExpertLayout, Matrix, QuantBits, QuantGroup, Vector } from './tensors.js'

export type Projection = 'gate' | 'up' | 'down'
export const PROJECTIONS: readonly Projection[] = ['gate', 'up', 'down']

/** 'bias': what is added to a projection's rows; scales and biases are a quantized weight's. */
export type PartKind = 'weight' | 'scales' | 'biases' | 'bias'

/** One row of the parts table in moeflux.json. */
export interface ExpertPart {
  readonly projection: Projection
  readonly kind: PartKind
  readonly dtype: string
  readonly bits: number // of a weight: 2, 4, 8, or 16 and 32 for floats
  readonly group: number // 0: not quantized
  readonly shape: readonly number[]
  readonly offset: number // from the start of the expert
  readonly size: number
  readonly block?: string // of a weight in blocks: a name of blockFormats.ts
  readonly span?: number // of a weight in blocks
}

/** One table for all layers, or one for each layer that has experts. */
export type ExpertTables = readonly (readonly ExpertPart[])[]

/** How a matrix is stored. */
export type MatrixFormat =
  | {
      readonly kind: 'quantized'
      readonly bits: QuantBits
      readonly group: QuantGroup
      readonly scaleType: 'BF16' | 'F16'
    }
  | { readonly kind: 'blocks'; readonly block: BlockName; readonly span: BlockSpan }
  | { readonly kind: 'plain'; readonly type: FloatType }

export type ExpertFormats = Readonly<Record<Projection, MatrixFormat>>

const EXPERT_ALIGNMENT = 64
const PART_ALIGNMENT = 16 // of biases, and of weights in blocks: GPUs load so many bytes at once
/** Widened when packing: they are few, and kernels take them as they are. */
export const BIAS_TYPE = 'F32'

/** What experts are where no parts table says otherwise; the 2-bit set differs in its bits alone. */
export function defaultExpertFormats(bits: QuantBits): ExpertFormats {
  const format: MatrixFormat = { kind: 'quantized', bits, group: 64, scaleType: 'BF16' }
  return { gate: format, up: format, down: format }
}

export function projectionShape(config: ModelConfig, projection: Projection): readonly [rows: number, cols: number] {
  const { hiddenSize, moeIntermediateSize } = config
  return projection === 'down' ? [hiddenSize, moeIntermediateSize] : [moeIntermediateSize, hiddenSize]
}

/** The parts of an expert of these formats, in stored order. */
export function expertParts(config: ModelConfig, formats: ExpertFormats): ExpertPart[] {
  const parts: ExpertPart[] = []
  let offset = 0
  for (const projection of PROJECTIONS) {
    const [rows, cols] = projectionShape(config, projection)
    const format = formats[projection]
    const add = (kind: PartKind, dtype: string, bits: number, group: number, width: number, size: number) => {
      parts.push({ projection, kind, dtype, bits, group, shape: [rows, width], offset, size })
      offset += size
    }
    if (format.kind === 'plain') {
      const bytes = FLOAT_BYTES[format.type]
      add('weight', format.type, bytes * 8, 0, cols, rows * cols * bytes)
      continue
    }
    if (format.kind === 'blocks') {
      const { block, span } = format
      const of = blockFormat(block)
      const sizes = blockSizes(rows, cols, of, span)
      offset = Math.ceil(offset / PART_ALIGNMENT) * PART_ALIGNMENT
      const shape = [rows, (cols * of.bits) / 32]
      const common = { projection, bits: of.bits, group: of.group }
      parts.push({ ...common, kind: 'weight', dtype: 'U32', shape, offset, size: sizes.weight, block, span })
      offset += sizes.weight
      add('scales', 'U8', of.bits, of.group, blockScaleBytes(of, span, cols), sizes.scales)
      offset = Math.ceil(offset / PART_ALIGNMENT) * PART_ALIGNMENT
      continue
    }
    const { bits, group, scaleType } = format
    const sizes = quantizedSizes(rows, cols, bits, group)
    add('weight', 'U32', bits, group, (cols * bits) / 32, sizes.weight)
    add('scales', scaleType, bits, group, cols / group, sizes.scales)
    add('biases', scaleType, bits, group, cols / group, sizes.biases)
  }
  if (!hasExpertBiases(config)) return parts
  offset = Math.ceil(offset / PART_ALIGNMENT) * PART_ALIGNMENT
  for (const projection of PROJECTIONS) {
    const [rows] = projectionShape(config, projection)
    const size = rows * FLOAT_BYTES[BIAS_TYPE]
    parts.push({ projection, kind: 'bias', dtype: BIAS_TYPE, bits: 32, group: 0, shape: [rows], offset, size })
    offset += size
  }
  return parts
}

export function hasExpertBiases(config: ModelConfig): boolean {
  return config.layers.some(({ feedForward }) => feedForward.kind === 'moe' && feedForward.expertBias)
}

/** The layout of each layer that has experts. A record takes as much as the largest layer's: slots serve all layers. */
export function expertLayouts(config: ModelConfig, tables: ExpertTables, set: string): ExpertLayout[] {
  const { expertLayers } = config
  if (tables.length !== 1 && tables.length !== expertLayers.length) {
    throw new TensorError(set, `has tables of ${tables.length} layers, want 1 or ${expertLayers.length}`)
  }
  const own = tables.map(parts => expertLayout(config, parts, set))
  const expertSize = Math.max(...own.map(layout => layout.expertSize))
  return Array.from({ length: Math.max(1, expertLayers.length) }, (_, place) => ({
    ...own[tables.length === 1 ? 0 : place],
    expertSize,
  }))
}

/** Checks a parts table against the model's shapes. The size of an expert follows from the table; none has size 0. */
export function expertLayout(config: ModelConfig, parts: readonly ExpertPart[], set: string): ExpertLayout {
  if (config.numExperts === 0) return NO_EXPERT
  const sorted = [...parts].sort((a, b) => a.offset - b.offset)
  let end = 0
  for (const part of sorted) {
    const name = `${set}.${part.projection}.${part.kind}`
    if (part.offset < end) throw new TensorError(name, `starts at ${part.offset}, inside the part before it`)
    if (part.offset % 2 !== 0) throw new TensorError(name, `starts at the odd offset ${part.offset}`)
    end = part.offset + part.size
  }
  return {
    gateBias: projectionBias(config, parts, 'gate', set),
    upBias: projectionBias(config, parts, 'up', set),
    downBias: projectionBias(config, parts, 'down', set),
    gate: projectionMatrix(config, parts, 'gate', set),
    up: projectionMatrix(config, parts, 'up', set),
    down: projectionMatrix(config, parts, 'down', set),
    expertSize: Math.ceil(end / EXPERT_ALIGNMENT) * EXPERT_ALIGNMENT,
  }
}

/** For models without experts. */
const NOTHING: Matrix = { kind: 'plain', name: '', rows: 0, cols: 0, type: 'BF16', weight: { offset: 0, size: 0 } }
const NO_EXPERT: ExpertLayout = {
  gate: NOTHING,
  up: NOTHING,
  down: NOTHING,
  gateBias: null,
  upBias: null,
  downBias: null,
  expertSize: 0,
}

function projectionBias(
  config: ModelConfig,
  parts: readonly ExpertPart[],
  projection: Projection,
  set: string,
): Vector | null {
  if (!hasExpertBiases(config)) return null
  const name = `${set}.${projection}.bias`
  const [length] = projectionShape(config, projection)
  const found = parts.filter(part => part.projection === projection && part.kind === 'bias')
  if (found.length !== 1) throw new TensorError(name, `is ${found.length} times in the table, want once`)
  const [{ dtype, shape, offset, size }] = found
  if (dtype !== BIAS_TYPE || shape.join() !== `${length}` || size !== length * FLOAT_BYTES[BIAS_TYPE]) {
    const got = `${dtype} [${shape}] of ${size} bytes`
    throw new TensorError(name, `is ${got}, want ${BIAS_TYPE} [${length}]`)
  }
  if (offset % 4 !== 0) throw new TensorError(name, `starts at ${offset}, want a multiple of 4`)
  return { name, length, type: BIAS_TYPE, data: { offset, size } }
}

function projectionMatrix(
  config: ModelConfig,
  parts: readonly ExpertPart[],
  projection: Projection,
  set: string,
): Matrix {
  const name = `${set}.${projection}`
  const [rows, cols] = projectionShape(config, projection)
  const find = (kind: PartKind): ExpertPart => {
    const found = parts.filter(part => part.projection === projection && part.kind === kind)
    if (found.length !== 1) throw new TensorError(`${name}.${kind}`, `is ${found.length} times in the table, want once`)
    return found[0]
  }
  const range = (kind: PartKind, want: number): ByteRange => {
    const { offset, size } = find(kind)
    if (size !== want) throw new TensorError(`${name}.${kind}`, `has ${size} bytes, want ${want}`)
    return { offset, size }
  }
  return storedMatrix(name, rows, cols, { find, range })
}
