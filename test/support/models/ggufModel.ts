// The tiny model as a GGUF file, made as the usual converter makes one: other names, norms with their 1 added, A_log as
// -exp(A_log), experts of a layer below each other.
import { float32ToBfloat16 } from '#moeflux/model/floats.js'
import { buildGguf, f32, type TestGguf, type TestGgufTensor, text, typeId, u32 } from './ggufWriter.js'
import { tinyTensors, valuesOf } from './tinyModel.js'

const LAYER_NAMES: Readonly<Record<string, string>> = {
  'input_layernorm.weight': 'attn_norm.weight',
  'post_attention_layernorm.weight': 'post_attention_norm.weight',
  'self_attn.q_proj.weight': 'attn_q.weight',
  'self_attn.k_proj.weight': 'attn_k.weight',
  'self_attn.v_proj.weight': 'attn_v.weight',
  'self_attn.o_proj.weight': 'attn_output.weight',
  'self_attn.q_norm.weight': 'attn_q_norm.weight',
  'self_attn.k_norm.weight': 'attn_k_norm.weight',
  'linear_attn.in_proj_qkv.weight': 'attn_qkv.weight',
  'linear_attn.in_proj_z.weight': 'attn_gate.weight',
  'linear_attn.in_proj_a.weight': 'ssm_alpha.weight',
  'linear_attn.in_proj_b.weight': 'ssm_beta.weight',
  'linear_attn.out_proj.weight': 'ssm_out.weight',
  'linear_attn.conv1d.weight': 'ssm_conv1d.weight',
  'linear_attn.A_log': 'ssm_a',
  'linear_attn.dt_bias': 'ssm_dt.bias',
  'linear_attn.norm.weight': 'ssm_norm.weight',
  'mlp.gate.weight': 'ffn_gate_inp.weight',
  'mlp.shared_expert_gate.weight': 'ffn_gate_inp_shexp.weight',
  'mlp.shared_expert.gate_proj.weight': 'ffn_gate_shexp.weight',
  'mlp.shared_expert.up_proj.weight': 'ffn_up_shexp.weight',
  'mlp.shared_expert.down_proj.weight': 'ffn_down_shexp.weight',
}

const TOP_NAMES: Readonly<Record<string, string>> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'lm_head.weight': 'output.weight',
  'model.norm.weight': 'output_norm.weight',
  'mtp.fc.weight': 'blk.4.nextn.eh_proj.weight',
  'mtp.pre_fc_norm_embedding.weight': 'blk.4.nextn.enorm.weight',
  'mtp.pre_fc_norm_hidden.weight': 'blk.4.nextn.hnorm.weight',
  'mtp.norm.weight': 'blk.4.nextn.shared_head_norm.weight',
}

const numbers = {
  block_count: 4,
  full_attention_interval: 4,
  embedding_length: 128,
  context_length: 1024,
  'attention.head_count': 2,
  'attention.head_count_kv': 1,
  'attention.key_length': 64,
  'attention.value_length': 64,
  'rope.dimension_count': 16,
  expert_count: 8,
  expert_used_count: 2,
  expert_feed_forward_length: 64,
  expert_shared_feed_forward_length: 64,
  'ssm.conv_kernel': 4,
  'ssm.state_size': 64,
  'ssm.group_count': 1,
  'ssm.time_step_rank': 2,
  'ssm.inner_size': 128,
}

export const tinyGgufMetadata: NonNullable<TestGguf['metadata']> = [
  ['general.architecture', text('qwen35moe')],
  ...Object.entries(numbers).map(([key, value]) => [`qwen35moe.${key}`, u32(value)] as const),
  ['qwen35moe.attention.layer_norm_rms_epsilon', f32(1e-6)],
  ['qwen35moe.rope.freq_base', f32(1e7)],
  ['tokenizer.ggml.eos_token_id', u32(511)],
]

/** Matrices as BF16, all else as F32. A head for drafts is the block after the last. */
export function tinyGgufTensors(source = tinyTensors()): TestGgufTensor[] {
  const tensors: TestGgufTensor[] = []
  const experts = new Map<string, Float32Array[]>()
  for (const [name, tensor] of source) {
    const values = valuesOf(tensor)
    const match = /^model\.layers\.(\d+)\.(.*)$/.exec(name.replace('mtp.layers.0.', 'model.layers.4.'))
    const expert = /mlp\.experts\.(\d+)\.(\w+)_proj/.exec(name)
    if (match !== null && expert !== null) {
      const stack = `blk.${match[1]}.ffn_${expert[2]}_exps.weight`
      if (!experts.has(stack)) experts.set(stack, [])
      experts.get(stack)![Number(expert[1])] = values
      continue
    }
    const to = match === null ? TOP_NAMES[name] : `blk.${match[1]}.${LAYER_NAMES[match[2]]}`
    const shape = name.includes('shared_expert_gate')
      ? [128]
      : tensor.shape.filter((_, i) => tensor.shape.length < 3 || i !== 1)
    tensors.push(converted(to, shape, name, values))
  }
  for (const [name, all] of experts) {
    const shape = name.includes('down') ? [all.length, 128, 64] : [all.length, 64, 128]
    tensors.push(bfloat16(name, shape, Float32Array.from(all.flatMap(values => [...values]))))
  }
  return tensors
}

export function tinyGguf(change: Partial<TestGguf> = {}): Uint8Array {
  return buildGguf({ metadata: tinyGgufMetadata, tensors: tinyGgufTensors(), ...change })
}

function converted(to: string, shape: readonly number[], name: string, values: Float32Array): TestGgufTensor {
  if (shape.length === 2 && !name.includes('conv1d')) return bfloat16(to, shape, values)
  const hasOne = /norm(_embedding|_hidden)?\.weight$/.test(name) && !name.includes('linear_attn')
  const changed = values.map(value => (name.endsWith('A_log') ? -Math.exp(value) : hasOne ? value + 1 : value))
  return { name: to, shape, type: typeId('F32'), data: new Uint8Array(changed.buffer) }
}

function bfloat16(name: string, shape: readonly number[], values: Float32Array): TestGgufTensor {
  return { name, shape, type: typeId('BF16'), data: new Uint8Array(Uint16Array.from(values, float32ToBfloat16).buffer) }
}
