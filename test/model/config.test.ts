// config.json of every family: what is read, what is refused, and sizes of published models.
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { layerKind, parseConfig } from '#moeflux/model/config.js'
import { presets } from '#moeflux/model/presets.js'
import {
  allExpertsBytes,
  expertBytes,
  FOUR_BIT,
  kvBytesPerToken,
  recurrentBytes,
  residentBytes,
  TWO_BIT,
} from '#moeflux/model/sizes.js'

type Json = Record<string, unknown>

const readJson = (path: string): Json => JSON.parse(readFileSync(path, 'utf8'))
const demo = () => readJson('demo-model/config.json')
const tiny = () => readJson('test/data/tiny-bf16/config.json')
const withText = (changes: Json): Json => ({ ...tiny(), ...changes })
const without = (field: string): Json => {
  const json = tiny()
  delete json[field]
  return json
}

describe('config.json', () => {
  test('of the demo model: nested text_config, rope_parameters, mixed bits', () => {
    const config = parseConfig(demo(), readJson('demo-model/generation_config.json'))
    expect(config).toMatchObject({
      hiddenSize: 256,
      numLayers: 8,
      numHeads: 4,
      numKvHeads: 2,
      headDim: 64,
      rope: { dims: 16, theta: 1e7, yarn: null },
      vocabSize: 8192,
      numExperts: 32,
      expertsPerToken: 4,
      linearConvDim: 512,
      maxPositionEmbeddings: 4096,
      eosTokenIds: [8185, 8183],
    })
    expect(config.quantization).toMatchObject({ bits: 4, group: 64 })
    expect(config.quantization?.overrides.get('language_model.model.layers.3.mlp.gate')).toEqual({ bits: 8, group: 64 })
    expect(Array.from({ length: 8 }, (_, i) => layerKind(config, i) === 'full_attention')).toEqual(
      [0, 0, 0, 1, 0, 0, 0, 1].map(Boolean),
    )
  })

  test('of the tiny model: fields at the root and under text_config give the same', () => {
    const fused = readJson('test/data/tiny-bf16/fused/config.json')
    const { modelType: a, ...root } = parseConfig(tiny())
    const { modelType: b, ...nested } = parseConfig(fused)
    expect(nested).toEqual(root)
    expect([a, b]).toEqual(['qwen3_5_moe_text', 'qwen3_5_moe'])
    expect(root.quantization).toBeNull()
    expect(root.fullAttentionInterval).toBe(4)
  })

  test('older rope fields', () => {
    const json = { ...without('rope_parameters'), rope_theta: 5e5, partial_rotary_factor: 0.5, rope_scaling: null }
    expect(parseConfig(json)).toMatchObject({ rope: { dims: 32, theta: 5e5 } })
    const scaled = { ...json, rope_scaling: { type: 'default', mrope_section: [4, 2, 2] } }
    expect(parseConfig(scaled)).toMatchObject({ rope: { dims: 32, theta: 5e5 } })
  })

  test('layer kinds from the interval where no list is given', () => {
    const json = { ...without('layer_types'), num_hidden_layers: 6, full_attention_interval: 3 }
    expect(
      parseConfig(json)
        .layerKinds.map(kind => kind[0])
        .join(''),
    ).toBe('llfllf')
  })

  test('eos ids: a number, a list, from both files, each once', () => {
    expect(parseConfig(withText({ eos_token_id: 7 })).eosTokenIds).toEqual([7])
    expect(parseConfig(withText({ eos_token_id: [7, 9] }), { eos_token_id: [9, 3] }).eosTokenIds).toEqual([9, 3, 7])
    expect(parseConfig(without('eos_token_id'), { eos_token_id: null }).eosTokenIds).toEqual([])
  })

  test.each<[string, Json, string]>([
    ['another model_type', { model_type: 'llama' }, 'model_type'],
    ['rope_type', { rope_parameters: { rope_type: 'longrope', rope_theta: 1e7 } }, 'rope_parameters.rope_type'],
    ['no rope_theta', { rope_parameters: { rope_type: 'default' } }, 'rope_theta'],
    ['an odd rotary dim', { rope_parameters: { rope_theta: 1e7, partial_rotary_factor: 0.234375 } }, 'partial_rotary'],
    ['attention_bias', { attention_bias: true }, 'attention_bias'],
    ['hidden_act', { hidden_act: 'gelu' }, 'hidden_act'],
    ['attn_output_gate', { attn_output_gate: false }, 'attn_output_gate'],
    ['norm_topk_prob', { norm_topk_prob: false }, 'norm_topk_prob'],
    ['mlp_only_layers', { mlp_only_layers: [0] }, 'mlp_only_layers'],
    ['conv kernel', { linear_conv_kernel_dim: 3 }, 'linear_conv_kernel_dim'],
    ['quantization mode', { quantization: { mode: 'nvfp4', bits: 4, group_size: 32 } }, 'quantization.mode'],
    ['quantization bits', { quantization: { bits: 3, group_size: 64 } }, 'quantization.bits'],
    ['quantization group', { quantization: { bits: 4, group_size: 16 } }, 'quantization.group_size'],
    ['bits of one tensor', { quantization: { bits: 4, group_size: 64, 'a.b': { bits: 5 } } }, 'quantization.a.b.bits'],
    ['another quantizer', { quantization_config: { quant_method: 'fp8' } }, 'quantization.quant_method'],
    [
      'hidden not a multiple of the group',
      { hidden_size: 96, quantization: { bits: 4, group_size: 64 } },
      'hidden_size',
    ],
    ['heads and kv heads', { num_attention_heads: 3, num_key_value_heads: 2 }, 'num_attention_heads'],
    ['value and key heads', { linear_num_key_heads: 2, linear_num_value_heads: 3 }, 'linear_num_value_heads'],
    ['top-k above the experts', { num_experts_per_tok: 9 }, 'num_experts_per_tok'],
    ['zero layers', { num_hidden_layers: 0, layer_types: [] }, 'num_hidden_layers'],
    ['layer_types of another length', { layer_types: ['full_attention'] }, 'layer_types'],
    ['an unknown layer type', { layer_types: ['full_attention', 'mla', 'x', 'y'] }, 'layer_types[1]'],
    ['a huge size', { vocab_size: 1e308 }, 'vocab_size'],
    ['a fraction', { hidden_size: 12.5 }, 'hidden_size'],
    ['a string', { hidden_size: '128' }, 'hidden_size'],
    ['a missing size', { head_dim: undefined }, 'head_dim'],
    ['a bad eos', { eos_token_id: ['x'] }, 'eos_token_id'],
  ])('refuses %s, naming field and values', (_, changes, field) => {
    let error: unknown
    try {
      parseConfig(withText(changes))
    } catch (thrown) {
      error = thrown
    }
    expect(error).toMatchObject({ code: 'UNSUPPORTED_MODEL' })
    expect((error as { field: string }).field).toContain(field)
    expect((error as Error).message).toMatch(/config\.json: .* is .*, want /)
  })

  test.each([[null], [[]], ['x'], [7]])('refuses %j as a whole', json => {
    expect(() => parseConfig(json)).toThrow('want a JSON object')
  })
})

describe('sizes of the presets are those of the published models', () => {
  test.each([
    ['a3b', 34.7],
    ['qwen3.5-122b-a10b', 122.1],
    ['a17b', 396],
    ['qwen3.5-0.8b', 0.752],
    ['qwen3.5-4b', 4.21],
    ['qwen3.5-9b', 8.95],
    ['qwen3.8-27b', 26.9],
    ['qwen3-30b-a3b', 30.5],
    ['qwen3-coder-next', 79.7],
    ['glm-4.5-air', 107],
    ['gpt-oss-20b', 20.9],
    ['gpt-oss-120b', 117],
  ] as const)('%s: %d billion parameters', (name, billions) => {
    const { config } = presets[name]
    const parameters = (residentBytes(config, null) + allExpertsBytes(config, null)) / 2e9
    expect(Math.abs(parameters / billions - 1)).toBeLessThan(0.005)
  })

  test.each([
    ['a3b', 1_769_472, 983_040, 18_119_393_280, 1.39e9, 40_960, 66e6],
    ['a17b', 7_077_888, 3_932_160, 217_432_719_360, 5.57e9, 61_440, 195e6],
  ] as const)('%s', (name, expert4, expert2, experts, resident, kv, recurrent) => {
    const { config } = presets[name]
    expect(expertBytes(config, FOUR_BIT)).toBe(expert4)
    expect(expertBytes(config, TWO_BIT)).toBe(expert2)
    expect(allExpertsBytes(config, FOUR_BIT)).toBe(experts)
    expect(Math.abs(residentBytes(config, FOUR_BIT) / resident - 1)).toBeLessThan(0.005)
    expect(kvBytesPerToken(config)).toBe(kv)
    expect(Math.abs(recurrentBytes(config) / recurrent - 1)).toBeLessThan(0.005)
  })
})
