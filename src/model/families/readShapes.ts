// Pieces of a config that several families have, each read the one way that they all mean it.
import { UnsupportedModelError } from '../../base/errors.js'
import { type ConfigFields, isObject, MAX_LAYERS } from '../configFields.js'
import type { LayerKind, RopeShape, YarnScaling } from '../layers.js'
import type { DeltaSizes } from './family.js'

export const MAX_EXPERTS = 65_535 // routing traces hold an expert in 16 bits

/** `rope_parameters` of today's exports, or the older `rope_theta`, `rope_scaling` and `partial_rotary_factor`. */
export function readRope(fields: ConfigFields, headDim: number, usualFactor: number): RopeShape {
  const name = isObject(fields.get('rope_parameters')) ? 'rope_parameters' : 'rope_scaling'
  const block = fields.object(name)
  const type = block?.get('rope_type') ?? block?.get('type') ?? 'default'
  if (type !== 'default' && type !== 'yarn') {
    throw new UnsupportedModelError(`${name}.rope_type`, type, 'default or yarn')
  }
  const theta = block?.has('rope_theta') ? block.positive('rope_theta') : fields.positive('rope_theta')
  const dims = rotatedChannels(fields, block, headDim, usualFactor)
  return { dims, theta, yarn: block !== null && type === 'yarn' ? readYarn(block, fields) : null }
}

function readYarn(block: ConfigFields, fields: ConfigFields): YarnScaling {
  for (const field of ['mscale', 'mscale_all_dim']) if (block.has(field)) block.refuse(field, 'no such field')
  const factor = block.positive('factor')
  const original = 'original_max_position_embeddings'
  return {
    factor,
    betaFast: block.positive('beta_fast', 32),
    betaSlow: block.positive('beta_slow', 1),
    originalContext: block.has(original) ? block.size(original) : fields.size('max_position_embeddings'),
    truncate: block.boolean('truncate', true),
    attentionFactor: block.positive('attention_factor', 0.1 * Math.log(factor) + 1),
  }
}

function rotatedChannels(fields: ConfigFields, block: ConfigFields | null, headDim: number, usual: number): number {
  const factor = block?.get('partial_rotary_factor') ?? fields.get('partial_rotary_factor') ?? usual
  const dims = typeof factor === 'number' ? Math.round(headDim * factor * 1e6) / 1e6 : Number.NaN
  if (Number.isInteger(dims) && dims % 2 === 0 && dims > 0 && dims <= headDim) return dims
  const want = `a factor that makes an even number of channels of head_dim ${headDim}`
  throw new UnsupportedModelError('partial_rotary_factor', factor, want)
}

/** `layer_types`, or every `full_attention_interval`th layer full. */
export function readLayerKinds(
  fields: ConfigFields,
  numLayers: number,
): { readonly kinds: readonly LayerKind[]; readonly interval: number } {
  const types = fields.get('layer_types')
  const readInterval = () => fields.size('full_attention_interval', MAX_LAYERS)
  if (types === undefined) {
    const interval = readInterval()
    const kindOf = (layer: number) => ((layer + 1) % interval === 0 ? 'full_attention' : 'linear_attention')
    return { kinds: Array.from({ length: numLayers }, (_, layer) => kindOf(layer)), interval }
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
  const interval = fields.has('full_attention_interval') ? readInterval() : firstFull < 0 ? 4 : firstFull + 1
  return { kinds: types as LayerKind[], interval }
}

export function readDelta(fields: ConfigFields): DeltaSizes {
  fields.mustBe('linear_conv_kernel_dim', 4)
  return {
    linearKeyHeads: fields.size('linear_num_key_heads'),
    linearValueHeads: fields.size('linear_num_value_heads'),
    linearKeyDim: fields.size('linear_key_head_dim'),
    linearValueDim: fields.size('linear_value_head_dim'),
  }
}
