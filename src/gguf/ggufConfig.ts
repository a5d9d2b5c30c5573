// config.json and generation_config.json, made of a GGUF file's metadata. What a config may say is checked where configs are
// read; here only what that reader cannot see: settings of GGUF that have no field there.
import { FormatError } from '../errors.js'
import type { GgufFields } from './ggufFields.js'
import { show } from './ggufHeader.js'

/** `general.architecture` of models that run, with the model_type that they are. */
export const ARCHITECTURES: ReadonlyMap<string, string> = new Map([['qwen35moe', 'qwen3_5_moe_text']])

const DEFAULT_INTERVAL = 4

export type JsonFields = Readonly<Record<string, unknown>>

export interface ConfigTensors {
  readonly vocabSize: number // rows of the embedding
  readonly hasHead: boolean // a matrix of its own for the logits
}

export function checkArchitecture(fields: GgufFields): string {
  const architecture = fields.get('general.architecture')
  if (typeof architecture === 'string' && ARCHITECTURES.has(architecture)) return architecture
  const known = [...ARCHITECTURES.keys()].join(', ')
  const detail = `general.architecture is ${show(architecture)}; of GGUF files these run: ${known}`
  throw new FormatError('UNSUPPORTED_MODEL', fields.file, detail)
}

export function configOf(fields: GgufFields, { vocabSize, hasHead }: ConfigTensors): JsonFields {
  const architecture = checkArchitecture(fields)
  const key = (name: string) => `${architecture}.${name}`
  const number = (name: string) => fields.number(key(name))
  refuseOtherMath(fields, key)
  const headDim = number('attention.key_length')
  const valueLength = fields.optionalNumber(key('attention.value_length'))
  if (valueLength !== undefined && valueLength !== headDim) fields.fail(key('attention.value_length'), String(headDim))
  const layers = number('block_count') - (fields.optionalNumber(key('nextn_predict_layers')) ?? 0)
  const valueHeads = number('ssm.time_step_rank')
  return {
    model_type: ARCHITECTURES.get(architecture),
    hidden_size: number('embedding_length'),
    num_hidden_layers: layers,
    ...layerKinds(fields, key, layers),
    num_attention_heads: perLayerNumber(fields, key('attention.head_count')),
    num_key_value_heads: perLayerNumber(fields, key('attention.head_count_kv')),
    head_dim: headDim,
    rms_norm_eps: shortest(number('attention.layer_norm_rms_epsilon')),
    rope_parameters: {
      rope_type: ropeType(fields, key),
      rope_theta: shortest(number('rope.freq_base')),
      partial_rotary_factor: number('rope.dimension_count') / headDim,
    },
    vocab_size: vocabSize,
    tie_word_embeddings: !hasHead,
    max_position_embeddings: number('context_length'),
    num_experts: number('expert_count'),
    num_experts_per_tok: number('expert_used_count'),
    moe_intermediate_size: number('expert_feed_forward_length'),
    shared_expert_intermediate_size: number('expert_shared_feed_forward_length'),
    linear_conv_kernel_dim: number('ssm.conv_kernel'),
    linear_key_head_dim: number('ssm.state_size'),
    linear_num_key_heads: number('ssm.group_count'),
    linear_num_value_heads: valueHeads,
    linear_value_head_dim: number('ssm.inner_size') / valueHeads,
  }
}

/** The tokens that end an answer: those the file names, and the chat's own where the tokenizer has them. */
export function generationConfigOf(fields: GgufFields): JsonFields {
  const named = ['eos_token_id', 'eot_token_id'].flatMap(name => fields.optionalNumber(`tokenizer.ggml.${name}`) ?? [])
  const tokens = fields.get('tokenizer.ggml.tokens')
  const types = fields.get('tokenizer.ggml.token_type')
  const isControl = (id: number) => Array.isArray(types) && types[id] === 3
  const usual = ['<|im_end|>', '<|endoftext|>'].flatMap(text => {
    const id = Array.isArray(tokens) ? tokens.indexOf(text) : -1
    return id >= 0 && isControl(id) ? [id] : []
  })
  const sampling = { temperature: 'temp', top_k: 'top_k', top_p: 'top_p', min_p: 'min_p' }
  const given = Object.entries(sampling).flatMap(([name, key]) => {
    const value = fields.optionalNumber(`general.sampling.${key}`)
    return value === undefined ? [] : [[name, shortest(value)]]
  })
  return { eos_token_id: [...new Set([...named, ...usual])], ...Object.fromEntries(given) }
}

function refuseOtherMath(fields: GgufFields, key: (name: string) => string): void {
  const gating = fields.optionalNumber(key('expert_gating_func')) ?? 1
  if (gating > 1) fields.fail(key('expert_gating_func'), '1 (softmax)')
  if (fields.get(key('expert_weights_norm')) === false) fields.fail(key('expert_weights_norm'), 'true')
  const scale = fields.optionalNumber(key('expert_weights_scale')) ?? 1
  if (scale !== 0 && scale !== 1) fields.fail(key('expert_weights_scale'), '1')
  if ((fields.optionalNumber(key('expert_group_count')) ?? 1) > 1) fields.fail(key('expert_group_count'), '1')
}

/** Given layer by layer, or by an interval. */
function layerKinds(fields: GgufFields, key: (name: string) => string, layers: number): JsonFields {
  const interval = fields.optionalNumber(key('full_attention_interval'))
  const recurrent = fields.get(key('attention.recurrent_layers'))
  if (!Array.isArray(recurrent)) return { full_attention_interval: interval ?? DEFAULT_INTERVAL }
  const types = recurrent.slice(0, layers).map(is => (is ? 'linear_attention' : 'full_attention'))
  return { layer_types: types, ...(interval === undefined ? {} : { full_attention_interval: interval }) }
}

function ropeType(fields: GgufFields, key: (name: string) => string): string {
  const type = fields.optionalString(key('rope.scaling.type'))
  return type === undefined || type === 'none' ? 'default' : type
}

/** One number, or a list in which layers without any have 0 and all others the same. */
function perLayerNumber(fields: GgufFields, key: string): number {
  if (!Array.isArray(fields.get(key))) return fields.number(key)
  const all = new Set(fields.numbers(key).filter(value => value !== 0))
  return all.size === 1 ? [...all][0] : fields.fail(key, 'one number for all layers')
}

/** The shortest number that is the same float32: 1e-6 and not 9.999999974752427e-7. */
function shortest(value: number): number {
  const float = Math.fround(value)
  for (let digits = 6; digits < 9; digits++) {
    const short = Number(float.toPrecision(digits))
    if (Math.fround(short) === float) return short
  }
  return value
}
