// config.json and generation_config.json, made of a GGUF file's metadata. What a config may say is checked where configs are
// read; here only what that reader cannot see: settings of GGUF that have no field there.
import { FormatError } from '../../base/errors.js'
import { families, familyOfArchitecture } from '../../model/families/families.js'
import type { Family } from '../../model/families/family.js'
import type { GgufMetadata, GgufTensorNames } from '../../model/families/ggufSource.js'
import type { GgufFields } from './ggufFields.js'
import { show } from './ggufHeader.js'

const DEFAULT_INTERVAL = 4

export type JsonFields = Readonly<Record<string, unknown>>

export interface ConfigTensors extends GgufTensorNames {
  readonly vocabSize: number // rows of the embedding
}

export function checkArchitecture(fields: GgufFields): Family {
  const architecture = fields.get('general.architecture')
  const family = familyOfArchitecture(architecture)
  if (family !== undefined) return family
  const known = families.map(({ gguf }) => gguf.architecture).join(', ')
  const detail = `general.architecture is ${show(architecture)}; of GGUF files these run: ${known}`
  throw new FormatError('UNSUPPORTED_MODEL', fields.file, detail)
}

export function configOf(fields: GgufFields, tensors: ConfigTensors): JsonFields {
  const { gguf } = checkArchitecture(fields)
  const key = (name: string) => `${gguf.architecture}.${name}`
  const metadata: GgufMetadata = {
    number: name => fields.number(key(name)),
    optionalNumber: name => fields.optionalNumber(key(name)),
    get: name => fields.get(key(name)),
    fail: (name, want) => fields.fail(key(name), want),
  }
  const { number, optionalNumber } = metadata
  const headDim = number('attention.key_length')
  const valueLength = optionalNumber('attention.value_length')
  if (valueLength !== undefined && valueLength !== headDim) metadata.fail('attention.value_length', String(headDim))
  const layers = number('block_count') - (optionalNumber('nextn_predict_layers') ?? 0)
  return {
    model_type: gguf.modelType,
    hidden_size: number('embedding_length'),
    num_hidden_layers: layers,
    ...(metadata.get('ssm.state_size') === undefined ? {} : layerKinds(fields, key, layers)),
    num_attention_heads: perLayerNumber(fields, key('attention.head_count')),
    num_key_value_heads: perLayerNumber(fields, key('attention.head_count_kv')),
    head_dim: headDim,
    rms_norm_eps: shortest(number('attention.layer_norm_rms_epsilon')),
    rope_parameters: {
      rope_type: ropeType(fields, key),
      rope_theta: shortest(number('rope.freq_base')),
      partial_rotary_factor: (optionalNumber('rope.dimension_count') ?? headDim) / headDim,
    },
    vocab_size: tensors.vocabSize,
    tie_word_embeddings: !tensors.has('output.weight'),
    max_position_embeddings: number('context_length'),
    ...gguf.configOf(metadata, tensors),
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
