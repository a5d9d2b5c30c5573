// What a synthetic model is: a preset's shape with some of its layers and experts, random weights drawn from a seed, and
// routing as skewed as asked for. Two equal specs give the same bytes. Pure.
import { presetNames } from '../../base/defaults.js'
import { OptionError } from '../../base/errors.js'
import { type ModelConfig, parseConfig, withDraftHead } from '../../model/config.js'
import { presets } from '../../model/presets.js'
import type { QuantBits } from '../../model/tensors.js'

/** What families call the number of experts. */
const EXPERTS_FIELDS = ['num_experts', 'n_routed_experts', 'num_local_experts']

export interface SyntheticSpec {
  readonly name: string // also the folder's
  readonly json: Readonly<Record<string, unknown>> // config.json
  readonly config: ModelConfig
  readonly expertBits: QuantBits
  /** 0: every token routes as if by dice. 1: about as uneven, and as alike from token to token, as real models are. */
  readonly skew: number
  readonly seed: number
}

export interface SyntheticOptions {
  readonly experts?: number
  readonly bits?: QuantBits
  readonly skew?: number
  readonly seed?: number
  readonly draftHead?: boolean // with a head for drafts, of random weights too
}

/** From 'a3b' or 'a3b:8' (so many layers). */
export function parseSyntheticSpec(text: string, options: SyntheticOptions = {}): SyntheticSpec {
  const [presetName, layerText, ...rest] = text.split(':')
  const preset = Object.values(presets).find(each => each.name === presetName)
  const layers = layerText === undefined ? preset?.config.numLayers : Number(layerText)
  if (!preset || rest.length > 0 || !Number.isInteger(layers) || layers! < 1 || layers! > 1024) {
    throw new OptionError('synthetic', text, `one of ${presetNames.join(', ')}, and :LAYERS where wanted`)
  }
  const { experts = preset.config.numExperts, bits = 4, skew = 1, seed = 1 } = options
  const smallest = preset.config.expertsPerToken
  if (smallest === 0 && options.experts !== undefined) {
    throw new OptionError('experts', experts, `nothing: ${preset.name} has no experts`)
  }
  if (experts < smallest) throw new OptionError('experts', experts, `at least the ${smallest} that a token uses`)
  if (!(skew >= 0 && skew <= 10)) throw new OptionError('skew', skew, '0 to 10')
  const parts = [`${preset.name}-${layers}l`, `${experts}e`, `${bits}bit`, `skew${skew}`, `seed${seed}`]
  const expertsField = EXPERTS_FIELDS.find(field => field in preset.json)
  const json = { ...preset.json, num_hidden_layers: layers, ...(expertsField ? { [expertsField]: experts } : {}) }
  const plain = syntheticSpec(parts.join('-'), json, bits, skew, seed)
  if (!options.draftHead) return plain
  const config = withDraftHead(plain.config)
  if (config.draftHead === null)
    throw new OptionError('drafts', 'a head', `none: ${preset.name} has no heads for drafts`)
  return { ...plain, name: `${plain.name}-head`, config }
}

export function syntheticSpec(
  name: string,
  shape: Readonly<Record<string, unknown>>,
  expertBits: QuantBits,
  skew: number,
  seed: number,
): SyntheticSpec {
  const json = { ...shape, quantization: { bits: 4, group_size: 64 } }
  return { name, json, config: parseConfig(json), expertBits, skew, seed }
}
