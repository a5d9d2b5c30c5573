// What a conversion will write, decided before a byte is read: the format of every matrix, where each resident tensor
// will lie in model_weights.bin, and the layout of experts. Pure but for what the source's headers say.
import { OptionError, TensorError } from '../../base/errors.js'
import { blockFormat, blockSizes } from '../../model/blockFormats.js'
import type { ModelConfig } from '../../model/config.js'
import {
  type ExpertFormats,
  type ExpertTables,
  expertLayouts,
  expertParts,
  hasExpertBiases,
  type MatrixFormat,
  PROJECTIONS,
  type Projection,
  projectionShape,
} from '../../model/expertLayout.js'
import { FLOAT_BYTES, type FloatType } from '../../model/floats.js'
import { QUANT_BITS, quantizedSizes } from '../../model/quantize.js'
import type { StoredTensor } from '../../model/resolveTensors.js'
import { layerPath, listSpecs, type MatrixSpec, planTensors, type VectorSpec } from '../../model/tensorPlan.js'
import type { QuantGroup } from '../../model/tensors.js'
import type { ExpertSetName } from '../packed/packedNames.js'
import type { SourceMatrix } from './sourceMatrix.js'
import type { SourceModel } from './sourceModel.js'

const TENSOR_ALIGNMENT = 64
const DRAFT_HEAD_GROUP = 64 // of the experts of a draft head that are narrowed

export interface PackingOptions {
  readonly bits?: 4 | 8 | 16 // of an unquantized source; default 4
  readonly groupSize?: QuantGroup // of an unquantized source; default 64
  readonly experts2bit?: boolean
}

export type ResidentItem =
  | { readonly kind: 'matrix'; readonly spec: MatrixSpec; readonly format: MatrixFormat }
  | {
      readonly kind: 'vector'
      readonly spec: VectorSpec
      readonly type: FloatType // as it will be stored
      readonly addOne: boolean
    }

export interface ExpertSetPlan {
  readonly name: ExpertSetName
  /** One for all layers, or one for each that has experts. */
  readonly formats: readonly ExpertFormats[]
  readonly tables: ExpertTables
  readonly expertSize: number
}

export interface PackingPlan {
  readonly items: readonly ResidentItem[]
  readonly stored: ReadonlyMap<string, StoredTensor> // in the order of their offsets
  readonly residentBytes: number
  readonly expertSets: readonly ExpertSetPlan[]
  /** What an unquantized source is quantized to; null where bytes are moved or kept as floats. */
  readonly quantization: { readonly bits: 4 | 8; readonly group: QuantGroup } | null
}

export function planPacking(source: SourceModel, options: PackingOptions): PackingPlan {
  const { config } = source
  if (source.isQuantized) refuseOtherBits(source, options)
  const bits = options.bits ?? 4
  const group = options.groupSize ?? 64
  const quantization = source.isQuantized || bits === 16 ? null : { bits, group }

  const items = listSpecs(planTensors(config)).map((spec): ResidentItem => {
    if (spec.kind === 'matrix') {
      return { kind: 'matrix', spec, format: storedFormat(source, source.matrix(spec), quantization, spec.isGate) }
    }
    const addOne = spec.role === 'zeroCentredNorm' && source.layout === 'hf'
    const type = addOne || spec.role === 'decay' ? 'F32' : source.vector(spec).type
    return { kind: 'vector', spec, type, addOne }
  })
  const { stored, residentBytes } = placeResident(source, items)
  return { items, stored, residentBytes, expertSets: planExperts(source, options, quantization), quantization }
}

/** Of all weights: the resident part, and the experts of each set. */
export function plannedBytes(config: ModelConfig, { residentBytes, expertSets }: PackingPlan): number {
  const experts = config.expertLayers.length * config.numExperts
  return expertSets.reduce((sum, { expertSize }) => sum + experts * expertSize, residentBytes)
}

function refuseOtherBits(source: SourceModel, options: PackingOptions): void {
  const has = source.config.quantization
  if (options.bits !== undefined && options.bits !== has?.bits) {
    throw new OptionError(
      'bits',
      options.bits,
      `${has?.bits ?? 'none'}: the source is quantized already and is not quantized again`,
    )
  }
  if (options.groupSize !== undefined && options.groupSize !== has?.group) {
    throw new OptionError('groupSize', options.groupSize, `${has?.group ?? 'none'}: the source is quantized already`)
  }
}

function storedFormat(
  source: SourceModel,
  matrix: SourceMatrix,
  quantization: PackingPlan['quantization'],
  isGate: boolean,
): MatrixFormat {
  if (matrix.kind === 'blocks') return { kind: 'blocks', block: matrix.block, span: matrix.span }
  if (matrix.kind === 'quantized') {
    const { bits, group, scaleType } = matrix
    return { kind: 'quantized', bits, group, scaleType }
  }
  // In a quantized source a matrix without scales was left alone on purpose. Halves are kept as they are.
  if (quantization === null) {
    return { kind: 'plain', type: matrix.type === 'F32' && !source.isQuantized ? 'BF16' : matrix.type }
  }
  const { bits, group } = quantization
  if (matrix.cols % group !== 0) {
    throw new OptionError('groupSize', group, `a divisor of the ${matrix.cols} columns of ${matrix.name}`)
  }
  return { kind: 'quantized', bits: isGate ? 8 : bits, group, scaleType: 'BF16' }
}

function placeResident(source: SourceModel, items: readonly ResidentItem[]) {
  const stored = new Map<string, StoredTensor>()
  let end = 0
  const place = (name: string, size: number, rest: Omit<StoredTensor, 'offset' | 'size'>) => {
    const offset = Math.ceil(end / TENSOR_ALIGNMENT) * TENSOR_ALIGNMENT
    stored.set(name, { offset, size, ...rest })
    end = offset + size
  }
  for (const item of items) {
    const { name } = item.spec
    if (item.kind === 'vector') {
      const { shape } = source.vector(item.spec)
      // One form for both layouts: the taps of a channel last.
      const packedShape = shape.length === 3 ? [shape[0], 1, shape[1] * shape[2]] : shape
      place(name, item.spec.length * FLOAT_BYTES[item.type], { shape: packedShape, dtype: item.type })
      continue
    }
    const { rows, cols } = item.spec
    if (item.format.kind === 'plain') {
      const { type } = item.format
      place(`${name}.weight`, rows * cols * FLOAT_BYTES[type], { shape: [rows, cols], dtype: type })
      continue
    }
    if (item.format.kind === 'blocks') {
      const { block, span } = item.format
      const format = blockFormat(block)
      const { bits, group } = format
      const sizes = blockSizes(rows, cols, format, span)
      const shape = [rows, (cols * bits) / 32]
      place(`${name}.weight`, sizes.weight, { shape, dtype: 'U32', bits, groupSize: group, block, span })
      place(`${name}.scales`, sizes.scales, { shape: [rows, sizes.scales / rows], dtype: 'U8' })
      continue
    }
    const { bits, group, scaleType } = item.format
    const sizes = quantizedSizes(rows, cols, bits, group)
    const weightShape = [rows, (cols * bits) / 32]
    place(`${name}.weight`, sizes.weight, { shape: weightShape, dtype: 'U32', bits, groupSize: group })
    place(`${name}.scales`, sizes.scales, { shape: [rows, cols / group], dtype: scaleType })
    place(`${name}.biases`, sizes.biases, { shape: [rows, cols / group], dtype: scaleType })
  }
  return { stored, residentBytes: end }
}

function planExperts(
  source: SourceModel,
  options: PackingOptions,
  quantization: PackingPlan['quantization'],
): ExpertSetPlan[] {
  const { config } = source
  if (config.expertLayers.length === 0) {
    if (options.experts2bit) throw new OptionError('experts2bit', true, 'false: this model has no experts')
    return []
  }
  const found: ExpertFormats[] = []
  // Every one is looked at now: an expert that is missing must not be found after hours of work.
  for (const layer of config.expertLayers) {
    const own = expertFormats(source, layer, 0, quantization)
    found.push(own)
    for (let expert = 0; expert < config.numExperts; expert++) {
      const other = expertFormats(source, layer, expert, quantization)
      for (const projection of PROJECTIONS) {
        if (hasExpertBiases(config)) source.expertBias(layer, expert, projection)
        const [got, want] = [describe(other[projection]), describe(own[projection])]
        if (got === want) continue
        const name = `${layerPath(config, layer)}mlp expert ${expert} ${projection}_proj`
        const detail = `is ${got}, but the layer's first expert has ${want}: all must agree`
        throw new TensorError(name, detail, source.sharded.folder.location)
      }
    }
  }
  const formats = fitDraftHead(config, found)
  const plan = (name: ExpertSetName, of: readonly ExpertFormats[]): ExpertSetPlan => {
    const tables = of.map(each => expertParts(config, each))
    return { name, formats: of, tables, expertSize: expertLayouts(config, tables, name)[0].expertSize }
  }
  const describeAll = (of: ExpertFormats) => PROJECTIONS.map(projection => describe(of[projection])).join()
  const isMixed = new Set(formats.map(describeAll)).size > 1
  const sets = [plan('packed_experts', isMixed ? formats : formats.slice(0, 1))]
  if (options.experts2bit) sets.push(plan('packed_experts_2bit', [twoBitFormats(source, formats[0], options)]))
  return sets
}

function expertFormats(
  source: SourceModel,
  layer: number,
  expert: number,
  quantization: PackingPlan['quantization'],
): ExpertFormats {
  const format = (projection: Projection) =>
    storedFormat(source, source.expert(layer, expert, projection), quantization, false)
  return { gate: format('gate'), up: format('up'), down: format('down') }
}

function twoBitFormats(source: SourceModel, formats: ExpertFormats, options: PackingOptions): ExpertFormats {
  const format = (projection: Projection): MatrixFormat => {
    const main = formats[projection]
    const group = main.kind === 'quantized' ? main.group : (options.groupSize ?? 64)
    const { cols, name } = source.expert(source.config.expertLayers[0], 0, projection)
    if (cols % group !== 0) throw new OptionError('groupSize', group, `a divisor of the ${cols} columns of ${name}`)
    return { kind: 'quantized', bits: 2, group, scaleType: 'BF16' }
  }
  if (PROJECTIONS.every(projection => formats[projection].kind === 'quantized' && formats[projection].bits === 2)) {
    throw new OptionError('experts2bit', true, 'false: the experts of this source have 2 bits already')
  }
  return { gate: format('gate'), up: format('up'), down: format('down') }
}

function describe(format: MatrixFormat): string {
  if (format.kind === 'blocks') return format.span === 0 ? format.block : `${format.block} in spans of ${format.span}`
  return format.kind === 'plain'
    ? format.type
    : `${format.bits}-bit in groups of ${format.group}, ${format.scaleType} scales`
}

/**
 * Stores the experts of a draft head in as many bits as fit into a record of the other layers: all
 * records have one size, so a head in 16 or 8 bits beside experts in 4 would enlarge all of them.
 * No text depends on it: the model verifies draft tokens. `formats`: of all layers with experts,
 * the head's last.
 */
function fitDraftHead(config: ModelConfig, formats: readonly ExpertFormats[]): readonly ExpertFormats[] {
  const own = formats.slice(0, -1)
  const head = formats.at(-1)
  if (config.draftHead?.feedForward.kind !== 'moe' || head === undefined || own.length === 0) return formats
  const most = Math.max(...own.map(each => recordBytes(config, each)))
  if (recordBytes(config, head) <= most) return formats
  if (PROJECTIONS.some(projection => projectionShape(config, projection)[1] % DRAFT_HEAD_GROUP !== 0)) return formats
  const narrower = [...QUANT_BITS]
    .sort((a, b) => b - a)
    .map((bits): ExpertFormats => {
      const format = { kind: 'quantized', bits, group: DRAFT_HEAD_GROUP, scaleType: 'BF16' } as const
      return { gate: format, up: format, down: format }
    })
  return [...own, narrower.find(each => recordBytes(config, each) <= most) ?? head]
}

function recordBytes(config: ModelConfig, formats: ExpertFormats): number {
  return expertLayouts(config, [expertParts(config, formats)], 'experts')[0].expertSize
}
