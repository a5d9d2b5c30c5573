// Where each tensor of a model lies, resolved once at open into one typed table per layer. Offsets are relative to a
// base: the start of model_weights.bin for the resident part, the start of an expert's record for experts.

import type { BlockName, BlockSpan } from './blockFormats.js'
import type { FloatType } from './floats.js'
import type { AttentionShape, DeltaShape, DenseShape, MoeShape } from './layers.js'

export type QuantBits = 2 | 4 | 8
export type QuantGroup = 32 | 64 | 128

export interface ByteRange {
  readonly offset: number
  readonly size: number
}

/** A matrix [rows, cols] in MLX's affine layout: w = scale * q + bias per group of `group` columns. */
export interface QuantizedMatrix {
  readonly kind: 'quantized'
  readonly name: string
  readonly rows: number
  readonly cols: number
  readonly bits: QuantBits
  readonly group: QuantGroup
  readonly scaleType: 'BF16' | 'F16'
  readonly weight: ByteRange // U32 [rows, cols * bits / 32]
  readonly scales: ByteRange // [rows, cols / group]
  readonly biases: ByteRange // [rows, cols / group]
}

/** A matrix [rows, cols] of plain floats. */
export interface PlainMatrix {
  readonly kind: 'plain'
  readonly name: string
  readonly rows: number
  readonly cols: number
  readonly type: FloatType
  readonly weight: ByteRange
}

/** A matrix [rows, cols] of codes with scales in two levels, or by a codebook: model/blockFormats.ts. */
export interface BlockMatrix {
  readonly kind: 'blocks'
  readonly name: string
  readonly rows: number
  readonly cols: number
  readonly block: BlockName
  readonly span: BlockSpan
  readonly weight: ByteRange // U32 [rows, cols * bits / 32]
  readonly scales: ByteRange // U8 [rows, bytes of a row's scales]
}

export type Matrix = QuantizedMatrix | BlockMatrix | PlainMatrix

/** A small float tensor: norm weights, conv taps, A_log, dt_bias. */
export interface Vector {
  readonly name: string
  readonly length: number
  readonly type: FloatType
  readonly data: ByteRange
}

/** gate and up [intermediate, hidden], down [hidden, intermediate]. */
export interface FeedForward {
  readonly gate: Matrix
  readonly up: Matrix
  readonly down: Matrix
}

export interface AttentionTensors {
  readonly kind: 'full_attention'
  readonly shape: AttentionShape
  readonly qProj: Matrix // [heads * headDim, hidden]; with an output gate twice the rows: per head query, then gate
  readonly kProj: Matrix // [kvHeads * headDim, hidden]
  readonly vProj: Matrix // [kvHeads * headDim, hidden]
  readonly oProj: Matrix // [hidden, heads * headDim]
  readonly qBias: Vector | null // as many as qProj has rows
  readonly kBias: Vector | null // [kvHeads * headDim]
  readonly vBias: Vector | null // [kvHeads * headDim]
  readonly oBias: Vector | null // [hidden]
  readonly qNorm: Vector | null // [headDim]
  readonly kNorm: Vector | null // [headDim]
  readonly sinks: Vector | null // [heads]
}

export interface DeltaTensors {
  readonly kind: 'linear_attention'
  readonly shape: DeltaShape
  readonly inProjQkv: Matrix // [convDim, hidden]
  readonly inProjZ: Matrix // [valueHeads * valueDim, hidden]
  readonly inProjA: Matrix // [valueHeads, hidden]
  readonly inProjB: Matrix // [valueHeads, hidden]
  readonly outProj: Matrix // [hidden, valueHeads * valueDim]
  readonly conv: Vector // [convDim * 4], channel-major, oldest tap first
  readonly aLog: Vector // [valueHeads]
  readonly dtBias: Vector // [valueHeads]
  readonly norm: Vector // [valueDim]
}

export interface MoeTensors {
  readonly kind: 'moe'
  readonly shape: MoeShape
  readonly router: Matrix // [experts, hidden]
  readonly routerBias: Vector | null // [experts]
  readonly selectionBias: Vector | null // [experts]
  readonly shared: SharedExpertTensors | null
}

export interface SharedExpertTensors {
  readonly gate: Matrix | null // [1, hidden]
  readonly expert: FeedForward
}

export interface DenseTensors {
  readonly kind: 'dense'
  readonly shape: DenseShape
  readonly expert: FeedForward
}

export interface LayerTensors {
  readonly layer: number
  readonly inputNorm: Vector // [hidden]
  readonly postAttentionNorm: Vector // [hidden]
  readonly mixer: AttentionTensors | DeltaTensors
  readonly feedForward: MoeTensors | DenseTensors
}

/** The head that guesses the token after the next one. */
export interface DraftHeadTensors {
  readonly fc: Matrix // [hidden, 2 * hidden]; the embedding's half comes first
  readonly embeddingNorm: Vector // [hidden]
  readonly hiddenNorm: Vector // [hidden]
  readonly layer: LayerTensors
  readonly norm: Vector // [hidden]
}

export interface ModelTensors {
  readonly embed: Matrix // [vocab, hidden]
  readonly norm: Vector // [hidden]
  readonly lmHead: Matrix // [vocab, hidden]; the same ranges as embed when tied
  readonly layers: readonly LayerTensors[]
  readonly draftHead: DraftHeadTensors | null
}

/** One set of experts (the main one or the 2-bit one): every expert of every layer has this layout. */
export interface ExpertLayout extends FeedForward {
  readonly gateBias: Vector | null // [intermediate]
  readonly upBias: Vector | null // [intermediate]
  readonly downBias: Vector | null // [hidden]
  readonly expertSize: number // bytes from one expert to the next, a multiple of 64
}
