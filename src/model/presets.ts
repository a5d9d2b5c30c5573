// The two published models that estimates, synthetic benchmark models and tests take their shapes from, as the
// config.json that they have.
import { type ModelConfig, parseConfig } from './config.js'

export type PresetName = 'a3b' | 'a17b'

export interface Preset {
  readonly name: PresetName
  readonly title: string
  readonly json: Readonly<Record<string, unknown>>
  readonly config: ModelConfig
  readonly thinkStartId: number
  readonly thinkEndId: number
}

const COMMON = {
  model_type: 'qwen3_5_moe_text',
  num_key_value_heads: 2,
  head_dim: 256,
  vocab_size: 248_320,
  full_attention_interval: 4,
  linear_num_key_heads: 16,
  linear_key_head_dim: 128,
  linear_value_head_dim: 128,
  linear_conv_kernel_dim: 4,
  rms_norm_eps: 1e-6,
  rope_parameters: { rope_type: 'default', rope_theta: 1e7, partial_rotary_factor: 0.25 },
  max_position_embeddings: 262_144,
  tie_word_embeddings: false,
  eos_token_id: [248_046, 248_044],
}

const A3B = {
  ...COMMON,
  hidden_size: 2048,
  num_hidden_layers: 40,
  num_attention_heads: 16,
  num_experts: 256,
  num_experts_per_tok: 8,
  moe_intermediate_size: 512,
  shared_expert_intermediate_size: 512,
  linear_num_value_heads: 32,
}

const A17B = {
  ...COMMON,
  hidden_size: 4096,
  num_hidden_layers: 60,
  num_attention_heads: 32,
  num_experts: 512,
  num_experts_per_tok: 10,
  moe_intermediate_size: 1024,
  shared_expert_intermediate_size: 1024,
  linear_num_value_heads: 64,
}

export const presets: Readonly<Record<PresetName, Preset>> = {
  a3b: makePreset('a3b', 'Qwen3.6-35B-A3B', A3B),
  a17b: makePreset('a17b', 'Qwen3.5-397B-A17B', A17B),
}

function makePreset(name: PresetName, title: string, json: Readonly<Record<string, unknown>>): Preset {
  return { name, title, json, config: parseConfig(json), thinkStartId: 248_068, thinkEndId: 248_069 }
}
