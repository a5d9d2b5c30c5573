// Where each tensor of a model lies, resolved once at open into one typed table per layer. Offsets are relative to a
// base: the start of model_weights.bin for the resident part, the start of an expert's record for experts.

export type FloatType = 'BF16' | 'F16' | 'F32'
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

export type Matrix = QuantizedMatrix | PlainMatrix

/** A small float tensor: norm weights, conv taps, A_log, dt_bias. */
export interface Vector {
  readonly name: string
  readonly length: number
  readonly type: FloatType
  readonly data: ByteRange
}

interface CommonLayerTensors {
  readonly layer: number
  readonly inputNorm: Vector // [hidden]
  readonly postAttentionNorm: Vector // [hidden]
  readonly router: Matrix // [experts, hidden]
  readonly sharedExpertGate: Matrix // [1, hidden]
  readonly sharedExpert: FeedForward
}

/** gate and up [intermediate, hidden], down [hidden, intermediate]. */
export interface FeedForward {
  readonly gate: Matrix
  readonly up: Matrix
  readonly down: Matrix
}

export interface FullAttentionTensors extends CommonLayerTensors {
  readonly kind: 'full_attention'
  readonly qProj: Matrix // [heads * 2 * headDim, hidden]: per head query, then gate
  readonly kProj: Matrix // [kvHeads * headDim, hidden]
  readonly vProj: Matrix // [kvHeads * headDim, hidden]
  readonly oProj: Matrix // [hidden, heads * headDim]
  readonly qNorm: Vector // [headDim]
  readonly kNorm: Vector // [headDim]
}

export interface LinearAttentionTensors extends CommonLayerTensors {
  readonly kind: 'linear_attention'
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

export type LayerTensors = FullAttentionTensors | LinearAttentionTensors

export interface ModelTensors {
  readonly embed: Matrix // [vocab, hidden]
  readonly norm: Vector // [hidden]
  readonly lmHead: Matrix // [vocab, hidden]; the same ranges as embed when tied
  readonly layers: readonly LayerTensors[]
}

/** One set of experts (the main one or the 2-bit one): every expert of every layer has this layout. */
export interface ExpertLayout extends FeedForward {
  readonly expertSize: number // bytes from one expert to the next, a multiple of 64
}
