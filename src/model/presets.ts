// Published models that estimates, synthetic benchmark models and tests take their shapes from, as the config.json that they
// have.

import { type PresetName, presetNames } from '../base/defaults.js'
import { type ModelConfig, parseConfig } from './config.js'

export interface Preset {
  readonly name: PresetName
  readonly title: string
  readonly json: Readonly<Record<string, unknown>>
  readonly config: ModelConfig
}

/** What Qwen3.5 and 3.6 have in common, with and without experts. */
const QWEN3_5 = {
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

const QWEN3_5_MOE = { model_type: 'qwen3_5_moe_text', num_key_value_heads: 2, ...QWEN3_5 }
const QWEN3_5_DENSE = { model_type: 'qwen3_5_text', num_key_value_heads: 4, ...QWEN3_5 }

/** What Qwen3 with experts and Qwen3-Next have in common. */
const QWEN3 = {
  hidden_size: 2048,
  num_hidden_layers: 48,
  vocab_size: 151_936,
  rms_norm_eps: 1e-6,
  norm_topk_prob: true,
  max_position_embeddings: 262_144,
  tie_word_embeddings: false,
  eos_token_id: [151_645, 151_643],
}

const GPT_OSS = {
  model_type: 'gpt_oss',
  hidden_size: 2880,
  intermediate_size: 2880,
  num_attention_heads: 64,
  num_key_value_heads: 8,
  head_dim: 64,
  num_experts_per_tok: 4,
  sliding_window: 128,
  swiglu_limit: 7,
  vocab_size: 201_088,
  rms_norm_eps: 1e-5,
  rope_theta: 150_000,
  rope_scaling: {
    rope_type: 'yarn',
    factor: 32,
    beta_fast: 32,
    beta_slow: 1,
    truncate: false,
    original_max_position_embeddings: 4096,
  },
  max_position_embeddings: 131_072,
  tie_word_embeddings: false,
  eos_token_id: [200_002],
}

const MODELS: Readonly<Record<PresetName, Pick<Preset, 'title' | 'json'>>> = {
  a3b: {
    title: 'Qwen3.6-35B-A3B',
    json: {
      ...QWEN3_5_MOE,
      hidden_size: 2048,
      num_hidden_layers: 40,
      num_attention_heads: 16,
      num_experts: 256,
      num_experts_per_tok: 8,
      moe_intermediate_size: 512,
      shared_expert_intermediate_size: 512,
      linear_num_value_heads: 32,
    },
  },
  a17b: {
    title: 'Qwen3.5-397B-A17B',
    json: {
      ...QWEN3_5_MOE,
      hidden_size: 4096,
      num_hidden_layers: 60,
      num_attention_heads: 32,
      num_experts: 512,
      num_experts_per_tok: 10,
      moe_intermediate_size: 1024,
      shared_expert_intermediate_size: 1024,
      linear_num_value_heads: 64,
    },
  },
  'qwen3.5-122b-a10b': {
    title: 'Qwen3.5-122B-A10B',
    json: {
      ...QWEN3_5_MOE,
      hidden_size: 3072,
      num_hidden_layers: 48,
      num_attention_heads: 32,
      num_experts: 256,
      num_experts_per_tok: 8,
      moe_intermediate_size: 1024,
      shared_expert_intermediate_size: 1024,
      linear_num_value_heads: 64,
    },
  },
  'qwen3.5-0.8b': {
    title: 'Qwen3.5-0.8B',
    json: {
      ...QWEN3_5_DENSE,
      hidden_size: 1024,
      intermediate_size: 3584,
      num_hidden_layers: 24,
      num_attention_heads: 8,
      num_key_value_heads: 2,
      linear_num_value_heads: 16,
      tie_word_embeddings: true,
    },
  },
  'qwen3.5-4b': {
    title: 'Qwen3.5-4B',
    json: {
      ...QWEN3_5_DENSE,
      hidden_size: 2560,
      intermediate_size: 9216,
      num_hidden_layers: 32,
      num_attention_heads: 16,
      linear_num_value_heads: 32,
      tie_word_embeddings: true,
    },
  },
  'qwen3.5-9b': {
    title: 'Qwen3.5-9B',
    json: {
      ...QWEN3_5_DENSE,
      hidden_size: 4096,
      intermediate_size: 12_288,
      num_hidden_layers: 32,
      num_attention_heads: 16,
      linear_num_value_heads: 32,
    },
  },
  'qwen3.8-27b': {
    title: 'Qwen3.8-27B',
    json: {
      ...QWEN3_5_DENSE,
      hidden_size: 5120,
      intermediate_size: 17_408,
      num_hidden_layers: 64,
      num_attention_heads: 24,
      linear_num_value_heads: 48,
    },
  },
  'qwen3-30b-a3b': {
    title: 'Qwen3-30B-A3B',
    json: {
      ...QWEN3,
      model_type: 'qwen3_moe',
      num_attention_heads: 32,
      num_key_value_heads: 4,
      head_dim: 128,
      num_experts: 128,
      num_experts_per_tok: 8,
      moe_intermediate_size: 768,
      rope_theta: 1e7,
    },
  },
  'qwen3-coder-next': {
    title: 'Qwen3-Coder-Next',
    json: {
      ...QWEN3,
      model_type: 'qwen3_next',
      num_attention_heads: 16,
      num_key_value_heads: 2,
      head_dim: 256,
      num_experts: 512,
      num_experts_per_tok: 10,
      moe_intermediate_size: 512,
      shared_expert_intermediate_size: 512,
      full_attention_interval: 4,
      linear_num_key_heads: 16,
      linear_num_value_heads: 32,
      linear_key_head_dim: 128,
      linear_value_head_dim: 128,
      linear_conv_kernel_dim: 4,
      partial_rotary_factor: 0.25,
      rope_theta: 5e6,
    },
  },
  'glm-4.5-air': {
    title: 'GLM-4.5-Air',
    json: {
      model_type: 'glm4_moe',
      hidden_size: 4096,
      intermediate_size: 10_944,
      num_hidden_layers: 46,
      num_attention_heads: 96,
      num_key_value_heads: 8,
      head_dim: 128,
      attention_bias: true,
      use_qk_norm: false,
      partial_rotary_factor: 0.5,
      rope_theta: 1e6,
      n_routed_experts: 128,
      n_shared_experts: 1,
      n_group: 1,
      topk_group: 1,
      num_experts_per_tok: 8,
      moe_intermediate_size: 1408,
      first_k_dense_replace: 1,
      norm_topk_prob: true,
      routed_scaling_factor: 1,
      vocab_size: 151_552,
      rms_norm_eps: 1e-5,
      max_position_embeddings: 131_072,
      tie_word_embeddings: false,
      eos_token_id: [151_329, 151_336, 151_338],
    },
  },
  'gpt-oss-20b': { title: 'gpt-oss-20b', json: { ...GPT_OSS, num_hidden_layers: 24, num_local_experts: 32 } },
  'gpt-oss-120b': { title: 'gpt-oss-120b', json: { ...GPT_OSS, num_hidden_layers: 36, num_local_experts: 128 } },
}

export const presets = Object.fromEntries(presetNames.map(name => [name, makePreset(name)])) as Readonly<
  Record<PresetName, Preset>
>

function makePreset(name: PresetName): Preset {
  const { title, json } = MODELS[name]
  return { name, title, json, config: parseConfig(json) }
}
