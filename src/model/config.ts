// The shapes of a model, read from its own config.json at run time. Immutable. What a layer is, is asked through
// `layerKind(i)` alone: later families will not fit a modulo. Knows nothing of files, bytes or backends.

export type LayerKind = 'full_attention' | 'linear_attention'

export interface ModelConfig {
  readonly modelType: string
  readonly hiddenSize: number
  readonly numLayers: number
  readonly numHeads: number
  readonly numKvHeads: number
  readonly headDim: number
  readonly rotaryDim: number // headDim * partial_rotary_factor
  readonly ropeTheta: number
  readonly rmsNormEps: number
  readonly vocabSize: number
  readonly numExperts: number
  readonly expertsPerToken: number // the model's own K
  readonly moeIntermediateSize: number
  readonly sharedExpertIntermediateSize: number
  readonly fullAttentionInterval: number
  readonly layerKinds: readonly LayerKind[] // [numLayers]
  readonly linearKeyHeads: number
  readonly linearValueHeads: number
  readonly linearKeyDim: number // per head
  readonly linearValueDim: number // per head
  readonly linearConvKernel: number // always 4
  readonly linearConvDim: number // 2 * keyHeads * keyDim + valueHeads * valueDim
  readonly tieWordEmbeddings: boolean
  readonly maxPositionEmbeddings: number
  readonly eosTokenIds: readonly number[]
}
