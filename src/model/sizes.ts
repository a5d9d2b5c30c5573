// How many bytes a model of some shape takes: experts, resident part, state. Pure arithmetic on a config, for estimates
// (`inspect`, memory budgets) and for the presets, which have no files. An opened model's own tables are exact.
import { type ModelConfig, withoutDraftHead } from './config.js'
import { hasExpertBiases } from './expertLayout.js'
import type { QuantFormat } from './quantizationConfig.js'
import { listSpecs, planTensors } from './tensorPlan.js'

export const FOUR_BIT: QuantFormat = { bits: 4, group: 64 }
export const TWO_BIT: QuantFormat = { bits: 2, group: 64 }
const ROUTER_BITS: QuantFormat['bits'] = 8
const BIAS_BYTES = 4

/** Bytes of a quantized [rows, cols] matrix with 16-bit scales and biases; of a 16-bit one where format is null. */
export function matrixBytes(rows: number, cols: number, format: QuantFormat | null): number {
  if (!format) return rows * cols * 2
  return (rows * cols * format.bits) / 8 + 2 * rows * Math.ceil(cols / format.group) * 2
}

/** Bytes from one expert to the next. */
export function expertBytes(config: ModelConfig, format: QuantFormat | null): number {
  const { hiddenSize, moeIntermediateSize } = config
  const upAndGate = 2 * matrixBytes(moeIntermediateSize, hiddenSize, format)
  const down = matrixBytes(hiddenSize, moeIntermediateSize, format)
  const biases = hasExpertBiases(config) ? (2 * moeIntermediateSize + hiddenSize) * BIAS_BYTES : 0
  return Math.ceil((upAndGate + down + biases) / 64) * 64
}

/** Experts of all layers; those of a head for drafts are counted where one is loaded. */
export function expertCount(config: ModelConfig): number {
  return config.moeLayers.length * config.numExperts
}

export function allExpertsBytes(config: ModelConfig, format: QuantFormat | null): number {
  return expertCount(config) * expertBytes(config, format)
}

/** Bytes of everything that every token uses: all but the routed experts. Routers are 8-bit where anything is. */
export function residentBytes(config: ModelConfig, format: QuantFormat | null): number {
  const routerFormat = format && { bits: ROUTER_BITS, group: format.group }
  return listSpecs(planTensors(config)).reduce((sum, spec) => {
    if (spec.kind === 'vector') return sum + spec.length * (spec.role === 'decay' ? 4 : 2)
    return sum + matrixBytes(spec.rows, spec.cols, spec.isGate ? routerFormat : format)
  }, 0)
}

/** Of what a head for drafts has besides its experts: bytes that are resident where it is used. */
export function headResidentBytes(config: ModelConfig, format: QuantFormat | null): number {
  return residentBytes(config, format) - residentBytes(withoutDraftHead(config), format)
}

/** Floats of one K or V row of one layer. */
export function kvRowSize(config: ModelConfig): number {
  return config.numKvHeads * config.headDim
}

/** Floats of a linear layer's convolution state [3, linearConvDim]. */
export function convStateSize(config: ModelConfig): number {
  return (config.linearConvKernel - 1) * config.linearConvDim
}

/** Floats of a linear layer's recurrent state [valueHeads, valueDim, keyDim]. */
export function recurrentStateSize(config: ModelConfig): number {
  return config.linearValueHeads * config.linearValueDim * config.linearKeyDim
}

export function fullLayerCount(config: ModelConfig): number {
  return layersOfKind(config, 'full_attention').length
}

export function layersOfKind(config: ModelConfig, kind: ModelConfig['layerKinds'][number]): number[] {
  return [...config.layerKinds.keys()].filter(layer => config.layerKinds[layer] === kind)
}

/** The kinds of all layers, that of a head for drafts last. */
export function allLayerKinds({ layerKinds, draftHead }: ModelConfig): ModelConfig['layerKinds'] {
  return draftHead === null ? layerKinds : [...layerKinds, draftHead.mixer.kind]
}

/** The layers that keep keys and values: those with full attention, and the head for drafts. */
export function kvLayers(config: ModelConfig): number[] {
  const own = layersOfKind(config, 'full_attention')
  return config.draftHead === null ? own : [...own, config.numLayers]
}

/** K and V of one token over all layers that keep them, in float32. */
export function kvBytesPerToken(config: ModelConfig): number {
  return kvLayers(config).length * 2 * kvRowSize(config) * 4
}

/** Convolution and recurrent state of one sequence over all linear layers, in float32. */
export function recurrentBytes(config: ModelConfig): number {
  const layers = config.numLayers - fullLayerCount(config)
  return layers * (convStateSize(config) + recurrentStateSize(config)) * 4
}
