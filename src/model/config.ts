// The shapes of a model, read from its own config.json at run time. Immutable. What a layer is, is in `layers`, made by the
// descriptor of the model's family. Refuses every config that this engine would compute wrongly. Knows nothing of files,
// bytes or backends.
import { UnsupportedModelError } from '../base/errors.js'
import { ConfigFields, isObject, type Json, MAX_LAYERS } from './configFields.js'
import { familyOf } from './families/families.js'
import type { Family, FamilyShapes } from './families/family.js'
import { type LayerKind, type LayerShape, moeLayers } from './layers.js'
import { parseQuantization, type Quantization } from './quantizationConfig.js'

export interface ModelConfig extends FamilyShapes {
  readonly family: string
  readonly modelType: string
  readonly hiddenSize: number
  readonly numLayers: number
  readonly numHeads: number
  readonly numKvHeads: number
  readonly headDim: number
  readonly rmsNormEps: number
  readonly vocabSize: number
  /** The layers that have experts: what "layer i of the experts" counts by. Empty in a dense model. */
  readonly moeLayers: readonly number[]
  /** The layer of this model's head for drafts, which counts as layer `numLayers`; null: it carries none. */
  readonly draftHead: LayerShape | null
  /** The layers that have a file of experts: `moeLayers`, and the head's where it has experts. */
  readonly expertLayers: readonly number[]
  readonly layerKinds: readonly LayerKind[] // [numLayers]
  readonly linearConvKernel: number // always 4
  readonly linearConvDim: number // 2 * keyHeads * keyDim + valueHeads * valueDim
  readonly tieWordEmbeddings: boolean
  readonly maxPositionEmbeddings: number
  readonly eosTokenIds: readonly number[]
  /** What an MLX folder says of its bits; null for unquantized checkpoints. */
  readonly quantization: Quantization | null
}

/** A checkpoint carries the head that its family describes: only its tensors tell. */
export function withDraftHead(config: ModelConfig): ModelConfig {
  const { headShape, moeLayers: own, numLayers } = config
  if (headShape === null || config.draftHead !== null) return config
  const expertLayers = headShape.feedForward.kind === 'moe' ? [...own, numLayers] : own
  return Object.freeze({ ...config, draftHead: headShape, expertLayers })
}

export function withoutDraftHead(config: ModelConfig): ModelConfig {
  return Object.freeze({ ...config, draftHead: null, expertLayers: config.moeLayers })
}

export function layerKind(config: ModelConfig, layer: number): LayerKind {
  return config.layerKinds[layer]
}

/** Reads config.json (already parsed), and generation_config.json for its eos ids where there is one. */
export function parseConfig(json: unknown, generationConfig: unknown = null): ModelConfig {
  if (!isObject(json)) throw new UnsupportedModelError('config', json, 'a JSON object')
  const root = json
  if (root.text_config !== undefined && !isObject(root.text_config)) {
    throw new UnsupportedModelError('text_config', root.text_config, 'an object')
  }
  const text = isObject(root.text_config) ? root.text_config : root
  const family = readFamily(root, text)
  const fields = new ConfigFields(text)
  const headDim = fields.size('head_dim')
  const numLayers = fields.size('num_hidden_layers', MAX_LAYERS)
  const shapes = family.readShapes(fields, { headDim, numLayers })
  const { linearKeyHeads, linearKeyDim, linearValueHeads, linearValueDim } = shapes
  const config: ModelConfig = {
    ...shapes,
    family: family.name,
    modelType: root.model_type as string,
    hiddenSize: fields.size('hidden_size'),
    numLayers,
    numHeads: fields.size('num_attention_heads'),
    numKvHeads: fields.size('num_key_value_heads'),
    headDim,
    rmsNormEps: fields.positive('rms_norm_eps', 1e-6),
    vocabSize: fields.size('vocab_size'),
    moeLayers: moeLayers(shapes.layers),
    draftHead: null,
    expertLayers: moeLayers(shapes.layers),
    layerKinds: shapes.layers.map(({ mixer }) => mixer.kind),
    linearConvKernel: 4,
    linearConvDim: 2 * linearKeyHeads * linearKeyDim + linearValueHeads * linearValueDim,
    tieWordEmbeddings: (fields.has('tie_word_embeddings') ? fields : new ConfigFields(root)).boolean(
      'tie_word_embeddings',
      false,
    ),
    maxPositionEmbeddings: fields.has('max_position_embeddings') ? fields.size('max_position_embeddings') : 32_768,
    eosTokenIds: parseEos(root, text, generationConfig),
    quantization: parseQuantization(root.quantization ?? root.quantization_config ?? text.quantization_config),
  }
  checkRatios(config)
  return Object.freeze(config)
}

function readFamily(root: Json, text: Json): Family {
  const family = familyOf(root.model_type)
  if (
    text !== root &&
    text.model_type !== undefined &&
    familyOf(text.model_type, 'text_config.model_type') !== family
  ) {
    throw new UnsupportedModelError('text_config.model_type', text.model_type, `one of ${family.modelTypes.join(', ')}`)
  }
  return family
}

/** generation_config.json first, because exports keep the chat's end there; then config.json; each id once. */
function parseEos(root: Json, text: Json, generationConfig: unknown): readonly number[] {
  const generation = isObject(generationConfig) ? generationConfig.eos_token_id : undefined
  const ids = [generation, root.eos_token_id, text.eos_token_id].flatMap(value => value ?? [])
  for (const id of ids) {
    if (!Number.isInteger(id) || (id as number) < 0) {
      throw new UnsupportedModelError('eos_token_id', id, 'a token id or a list of them')
    }
  }
  return [...new Set(ids as number[])]
}

function checkRatios(config: ModelConfig) {
  const multiple = (field: string, got: number, of: number, what: string) => {
    if (got % of !== 0) throw new UnsupportedModelError(field, got, `a multiple of ${of} (${what})`)
  }
  multiple('num_attention_heads', config.numHeads, config.numKvHeads, 'num_key_value_heads')
  if (config.linearKeyHeads > 0) {
    multiple('linear_num_value_heads', config.linearValueHeads, config.linearKeyHeads, 'linear_num_key_heads')
  }
  if (config.expertsPerToken > config.numExperts) {
    const want = `at most ${config.numExperts} (num_experts)`
    throw new UnsupportedModelError('num_experts_per_tok', config.expertsPerToken, want)
  }
  if (config.quantization) {
    // Single tensors may have another group; each is checked again where its own table entry is made.
    const { smallestGroup } = config.quantization
    const inputs = [
      ['hidden_size', config.hiddenSize],
      ['moe_intermediate_size', config.moeIntermediateSize],
      ['shared_expert_intermediate_size', config.sharedExpertIntermediateSize],
      ['num_attention_heads * head_dim', config.numHeads * config.headDim],
      ['linear_num_value_heads * linear_value_head_dim', config.linearValueHeads * config.linearValueDim],
    ] as const
    for (const [field, got] of inputs) multiple(field, got, smallestGroup, 'quantization.group_size')
  }
}
