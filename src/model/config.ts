// The shapes of a model, read from its own config.json at run time. Immutable. What a layer is, is asked through
// `layerKind(config, i)` alone: later families will not fit a modulo. Refuses every config that this engine would
// compute wrongly. Knows nothing of files, bytes or backends.
import { UnsupportedModelError } from '../errors.js'
import { parseQuantization, type Quantization } from './quantizationConfig.js'

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
  /** What an MLX folder says of its bits; null for unquantized checkpoints. */
  readonly quantization: Quantization | null
}

export function layerKind(config: ModelConfig, layer: number): LayerKind {
  return config.layerKinds[layer]
}

const MODEL_TYPES = ['qwen3_5_moe', 'qwen3_5_moe_text']
const MAX_SIZE = 2 ** 31 - 1
const MAX_LAYERS = 4096
const MAX_EXPERTS = 65_535 // routing traces hold an expert in 16 bits

type Json = Readonly<Record<string, unknown>>

/** Reads config.json (already parsed), and generation_config.json for its eos ids where there is one. */
export function parseConfig(json: unknown, generationConfig: unknown = null): ModelConfig {
  if (!isObject(json)) throw new UnsupportedModelError('config', json, 'a JSON object')
  const root = json
  if (root.text_config !== undefined && !isObject(root.text_config)) {
    throw new UnsupportedModelError('text_config', root.text_config, 'an object')
  }
  const text = isObject(root.text_config) ? root.text_config : root
  const modelType = checkModelType(root, text)
  refuseWhatWouldBeWrong(text)

  const size = (field: string, max = MAX_SIZE) => positiveInteger(text, field, max)
  const headDim = size('head_dim')
  const numLayers = size('num_hidden_layers', MAX_LAYERS)
  const linearKeyHeads = size('linear_num_key_heads')
  const linearValueHeads = size('linear_num_value_heads')
  const linearKeyDim = size('linear_key_head_dim')
  const linearValueDim = size('linear_value_head_dim')
  const rope = parseRope(text, headDim)
  const layers = parseLayerKinds(text, numLayers)
  const config: ModelConfig = {
    modelType,
    hiddenSize: size('hidden_size'),
    numLayers,
    numHeads: size('num_attention_heads'),
    numKvHeads: size('num_key_value_heads'),
    headDim,
    rotaryDim: rope.rotaryDim,
    ropeTheta: rope.theta,
    rmsNormEps: positiveNumber(text, 'rms_norm_eps', 1e-6),
    vocabSize: size('vocab_size'),
    numExperts: size('num_experts', MAX_EXPERTS),
    expertsPerToken: size('num_experts_per_tok'),
    moeIntermediateSize: size('moe_intermediate_size'),
    sharedExpertIntermediateSize: size('shared_expert_intermediate_size'),
    fullAttentionInterval: layers.interval,
    layerKinds: layers.kinds,
    linearKeyHeads,
    linearValueHeads,
    linearKeyDim,
    linearValueDim,
    linearConvKernel: 4,
    linearConvDim: 2 * linearKeyHeads * linearKeyDim + linearValueHeads * linearValueDim,
    tieWordEmbeddings: boolean('tie_word_embeddings', text.tie_word_embeddings ?? root.tie_word_embeddings, false),
    maxPositionEmbeddings: text.max_position_embeddings === undefined ? 32_768 : size('max_position_embeddings'),
    eosTokenIds: parseEos(root, text, generationConfig),
    quantization: parseQuantization(root.quantization ?? root.quantization_config ?? text.quantization_config),
  }
  checkRatios(config)
  return Object.freeze(config)
}

function checkModelType(root: Json, text: Json): string {
  for (const [field, value] of [
    ['model_type', root.model_type],
    ['text_config.model_type', text.model_type],
  ] as const) {
    const absentInner = field === 'text_config.model_type' && value === undefined
    if (!absentInner && !MODEL_TYPES.includes(value as string)) {
      throw new UnsupportedModelError(field, value, MODEL_TYPES.join(' or '))
    }
  }
  return root.model_type as string
}

/** Settings that other models of this shape have and this engine does not compute. */
function refuseWhatWouldBeWrong(text: Json) {
  const refuse = (field: string, right: boolean, want: string) => {
    if (!right) throw new UnsupportedModelError(field, text[field], want)
  }
  const absent = (field: string) => text[field] === undefined || text[field] === null
  refuse('attention_bias', absent('attention_bias') || text.attention_bias === false, 'false')
  refuse('hidden_act', absent('hidden_act') || text.hidden_act === 'silu', 'silu')
  refuse('attn_output_gate', absent('attn_output_gate') || text.attn_output_gate === true, 'true')
  refuse('norm_topk_prob', absent('norm_topk_prob') || text.norm_topk_prob === true, 'true')
  refuse('decoder_sparse_step', absent('decoder_sparse_step') || text.decoder_sparse_step === 1, '1')
  refuse('linear_conv_kernel_dim', absent('linear_conv_kernel_dim') || text.linear_conv_kernel_dim === 4, '4')
  const dense = text.mlp_only_layers
  refuse('mlp_only_layers', absent('mlp_only_layers') || (Array.isArray(dense) && dense.length === 0), 'no entries')
}

/** `rope_parameters` of today's exports, or the older `rope_theta`, `rope_scaling` and `partial_rotary_factor`. */
function parseRope(text: Json, headDim: number): { theta: number; rotaryDim: number } {
  const name = isObject(text.rope_parameters) ? 'rope_parameters' : 'rope_scaling'
  const block = text[name] ?? {}
  if (!isObject(block)) throw new UnsupportedModelError(name, block, 'an object')
  const type = block.rope_type ?? block.type ?? 'default'
  if (type !== 'default') throw new UnsupportedModelError(`${name}.rope_type`, type, 'default')
  const theta = positiveNumber({ rope_theta: block.rope_theta ?? text.rope_theta }, 'rope_theta')
  const factor = block.partial_rotary_factor ?? text.partial_rotary_factor ?? 0.25
  const rotaryDim = typeof factor === 'number' ? Math.round(headDim * factor * 1e6) / 1e6 : Number.NaN
  if (!Number.isInteger(rotaryDim) || rotaryDim % 2 !== 0 || rotaryDim <= 0 || rotaryDim > headDim) {
    const want = `a factor that makes an even number of channels of head_dim ${headDim}`
    throw new UnsupportedModelError('partial_rotary_factor', factor, want)
  }
  return { theta, rotaryDim }
}

function parseLayerKinds(text: Json, numLayers: number): { kinds: readonly LayerKind[]; interval: number } {
  const given = text.full_attention_interval
  const types = text.layer_types
  if (types === undefined || types === null) {
    const interval = positiveInteger(text, 'full_attention_interval', MAX_LAYERS)
    const kinds = Array.from({ length: numLayers }, (_, i) =>
      (i + 1) % interval === 0 ? 'full_attention' : 'linear_attention',
    )
    return { kinds, interval }
  }
  if (!Array.isArray(types) || types.length !== numLayers) {
    const got = Array.isArray(types) ? `${types.length} entries` : types
    throw new UnsupportedModelError('layer_types', got, `${numLayers} entries (num_hidden_layers)`)
  }
  types.forEach((type, i) => {
    if (type !== 'full_attention' && type !== 'linear_attention') {
      throw new UnsupportedModelError(`layer_types[${i}]`, type, 'full_attention or linear_attention')
    }
  })
  const firstFull = types.indexOf('full_attention')
  const interval =
    given === undefined || given === null
      ? firstFull < 0
        ? 4
        : firstFull + 1
      : positiveInteger(text, 'full_attention_interval', MAX_LAYERS)
  return { kinds: [...(types as LayerKind[])], interval }
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
  multiple('linear_num_value_heads', config.linearValueHeads, config.linearKeyHeads, 'linear_num_key_heads')
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

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function positiveInteger(json: Json, field: string, max: number): number {
  const value = json[field]
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 1 || value > max) {
    throw new UnsupportedModelError(field, value, `an integer from 1 to ${max}`)
  }
  return value
}

function positiveNumber(json: Json, field: string, fallback?: number): number {
  const value = json[field] ?? fallback
  if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0) {
    throw new UnsupportedModelError(field, value, 'a positive number')
  }
  return value
}

function boolean(field: string, value: unknown, fallback: boolean): boolean {
  if (value === undefined || value === null) return fallback
  if (typeof value !== 'boolean') throw new UnsupportedModelError(field, value, 'true or false')
  return value
}
