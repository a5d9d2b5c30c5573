// The tiny checkpoints of test/data/families in the other forms that people have them in: MLX folders, multimodal
// checkpoints, GGUF files, floats in place of MXFP4. All hold the same values.
import { float32ToBfloat16 } from '#moeflux/model/floats.js'
import { type FamilyName, familyCheckpoint, familyConfig } from './families.js'
import { buildGguf, f32, type TestGgufTensor, text, typeId, u32 } from './ggufWriter.js'
import { floatTensor, readTensorTable, type Tensors, valuesOf } from './tinyModel.js'

export const familyTensors = (name: FamilyName): Tensors => readTensorTable(Buffer.from(familyCheckpoint(name)))

/** As mlx-lm writes them without quantizing: experts stacked, taps last, norms with their 1. */
export function mlxForm(name: FamilyName): Tensors {
  const isCentred = name === 'qwen3_5' || name === 'qwen3_next'
  const out: Tensors = new Map()
  for (const [key, tensor] of stackExperts(familyTensors(name), 'mlp.switch_mlp.$_proj.weight')) {
    const values = () => valuesOf(tensor)
    if (key.endsWith('conv1d.weight')) out.set(key, { ...tensor, shape: [tensor.shape[0], 4, 1] })
    else if (isCentred && isNorm(key))
      out.set(
        key,
        floatTensor(
          'F32',
          tensor.shape,
          values().map(value => value + 1),
        ),
      )
    else out.set(key, tensor)
  }
  return out
}

/** MXFP4 of gpt-oss as BF16: [experts, in, out], gate and up in alternating columns. */
export function bfloat16Experts(tensors: Tensors): Tensors {
  const out: Tensors = new Map()
  for (const [key, tensor] of tensors) {
    if (key.endsWith('_scales')) continue
    if (!key.endsWith('_blocks')) {
      out.set(key, tensor)
      continue
    }
    const scales = tensors.get(key.replace('_blocks', '_scales'))!
    const [experts, rows, blocks] = tensor.shape
    const cols = blocks * 32
    const values = new Float32Array(experts * rows * cols)
    for (let i = 0; i < values.length; i++) {
      const byte = tensor.data[i >> 1]
      const [expert, row, col] = [Math.floor(i / (rows * cols)), Math.floor(i / cols) % rows, i % cols]
      const value = E2M1[i % 2 === 0 ? byte & 15 : byte >> 4] * 2 ** (scales.data[i >> 5] - 127)
      values[(expert * cols + col) * rows + row] = value
    }
    out.set(key.replace('_blocks', ''), floatTensor('BF16', [experts, cols, rows], values))
  }
  return out
}

/** Experts of gpt-oss as mlx-lm has them, gate and up in tensors of their own: MXFP4 as words, scales, biases. */
export function mlxMxfp4Experts(tensors: Tensors): Tensors {
  const out: Tensors = new Map()
  for (const [key, tensor] of splitAlternating(tensors)) {
    if (key.endsWith('_blocks')) {
      const [experts, rows, blocks] = tensor.shape
      out.set(key.replace('_blocks', '.weight'), { ...tensor, dtype: 'U32', shape: [experts, rows, blocks * 4] })
    } else out.set(key.replace(/(experts\.\w+_proj)_(scales|bias)$/, '$1.$2'), tensor)
  }
  return out
}

/** Of tensors whose rows are gate and up in turns, two tensors. */
function splitAlternating(tensors: Tensors): Tensors {
  const out: Tensors = new Map()
  for (const [key, tensor] of tensors) {
    if (!key.includes('gate_up_proj')) {
      out.set(key, tensor)
      continue
    }
    const [experts, rows, ...rest] = tensor.shape
    const size = tensor.data.length / (experts * rows)
    for (const [first, projection] of ['gate', 'up'].entries()) {
      const all = Array.from({ length: (experts * rows) / 2 }, (_, row) => 2 * row + first)
      const data = Buffer.concat(all.map(row => tensor.data.subarray(row * size, (row + 1) * size)))
      out.set(key.replace('gate_up', projection), { ...tensor, shape: [experts, rows / 2, ...rest], data })
    }
  }
  return out
}

/** Blocks as GGUF has them: the exponent, then of each byte's two codes the first 16 columns and the last 16. */
function ggufMxfp4(blocks: Uint8Array, scales: Uint8Array): Uint8Array {
  const out = new Uint8Array(scales.length * 17)
  for (let block = 0; block < scales.length; block++) {
    const code = (column: number) => (blocks[block * 16 + (column >> 1)] >> (column % 2 === 0 ? 0 : 4)) & 15
    out[block * 17] = scales[block]
    for (let i = 0; i < 16; i++) out[block * 17 + 1 + i] = code(i) | (code(i + 16) << 4)
  }
  return out
}

const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6]

function isNorm(key: string): boolean {
  return /norm\.weight$/.test(key) && !key.includes('linear_attn')
}

/** One tensor for each projection of a layer's experts; `$` stands for the projection. */
function stackExperts(tensors: Tensors, to: string): Tensors {
  const out: Tensors = new Map()
  const stacks = new Map<string, Uint8Array[]>()
  for (const [key, tensor] of tensors) {
    const match = /^(model\.layers\.\d+\.)mlp\.experts\.(\d+)\.(\w+)_proj\.weight$/.exec(key)
    if (match === null) {
      out.set(key, tensor)
      continue
    }
    const name = match[1] + to.replace('$', match[3])
    const stack = stacks.get(name) ?? []
    stacks.set(name, stack)
    stack[Number(match[2])] = tensor.data
    out.set(name, { ...tensor, shape: [stack.length, ...tensor.shape], data: Buffer.concat(stack) })
  }
  return out
}

const GGUF_LAYER_NAMES: readonly (readonly [string, string])[] = [
  ['input_layernorm', 'attn_norm'],
  ['post_attention_layernorm', 'post_attention_norm'],
  ['self_attn.o_proj', 'attn_output'],
  ['self_attn.sinks', 'attn_sinks.weight'],
  ['mlp.shared_experts.', 'ffn_@_shexp.'],
  ['mlp.shared_expert.', 'ffn_@_shexp.'],
  ['mlp.shared_expert_gate', 'ffn_gate_inp_shexp'],
  ['mlp.gate.e_score_correction_bias', 'exp_probs_b.bias'],
  ['mlp.gate.', 'ffn_gate_inp.'],
  ['mlp.router.', 'ffn_gate_inp.'],
  ['mlp.experts.', 'ffn_@_exps.'],
  ['mlp.', 'ffn_@.'],
  ['linear_attn.in_proj_ba', 'ssm_ba'],
  ['linear_attn.out_proj', 'ssm_out'],
  ['linear_attn.conv1d', 'ssm_conv1d'],
  ['linear_attn.norm', 'ssm_norm'],
  ['linear_attn.A_log', 'ssm_a'],
  ['linear_attn.dt_bias', 'ssm_dt.bias'],
]

/** Names as llama.cpp's converter gives them. */
function ggufName(key: string, name: FamilyName): string {
  const match = /^model\.layers\.(\d+)\.(.*)$/.exec(key)
  if (match === null) {
    return key
      .replace('model.embed_tokens', 'token_embd')
      .replace('lm_head', 'output')
      .replace('model.norm', 'output_norm')
  }
  const layer = match[1]
  const rest = match[2].replace(/_proj_blocks$/, '_proj.weight').replace(/_proj_bias$/, '_proj.bias')
  if (name === 'qwen3_moe' && rest.startsWith('post_attention')) return `blk.${layer}.ffn_norm.weight`
  for (const [from, to] of GGUF_LAYER_NAMES) {
    if (!rest.startsWith(from)) continue
    const tail = rest.slice(from.length)
    const projection = /^(gate|up|down)_proj\./.exec(tail)
    const named = projection ? to.replace('@', projection[1]) + tail.slice(projection[0].length) : to + tail
    return `blk.${layer}.${named}`
  }
  return `blk.${layer}.${rest.replace('self_attn.', 'attn_').replace('_proj', '')}`
}

type GgufFamily = Exclude<FamilyName, 'qwen3_5'>

/** Not for qwen3_5, whose heads another converter reorders. */
export function ggufForm(name: GgufFamily): Uint8Array {
  const tensors: TestGgufTensor[] = []
  const stacked = splitAlternating(stackExperts(familyTensors(name), 'mlp.experts.$_proj.weight'))
  for (const [key, tensor] of name === 'qwen3_next' ? splitProjections(stacked) : stacked) {
    if (key.startsWith('model.layers.4.')) continue // the MTP block
    if (key.endsWith('_scales')) continue
    if (key.endsWith('_blocks')) {
      const [experts, rows, blocks] = tensor.shape
      const data = ggufMxfp4(tensor.data, stacked.get(key.replace('_blocks', '_scales'))!.data)
      const type = typeId('MXFP4')
      tensors.push({ name: ggufName(key, name), shape: [experts, rows, blocks * 32], type, data })
      continue
    }
    const shape = key.includes('conv1d') ? [tensor.shape[0], 4] : tensor.shape
    const isMatrix = shape.length > 1 && !key.includes('conv1d') && !key.endsWith('bias')
    const change = (value: number) => (key.endsWith('A_log') ? -Math.exp(value) : hasOne(key, name) ? value + 1 : value)
    const values = valuesOf(tensor).map(change)
    const data = isMatrix ? Uint16Array.from(values, float32ToBfloat16) : values
    const type = typeId(isMatrix ? 'BF16' : 'F32')
    tensors.push({ name: ggufName(key, name), shape, type, data: new Uint8Array(data.buffer) })
  }
  return buildGguf({ metadata: ggufMetadata(name), tensors })
}

function hasOne(key: string, name: FamilyName): boolean {
  return name === 'qwen3_next' && isNorm(key)
}

/** in_proj_qkvz as the converter cuts it: q, k, v of all heads, and z. */
function splitProjections(tensors: Tensors): Tensors {
  const [keyHeads, key, value] = [2, 32, 128] // value: of the two value heads of a key head
  const out: Tensors = new Map()
  for (const [name, tensor] of tensors) {
    if (!name.endsWith('in_proj_qkvz.weight')) {
      out.set(name, tensor)
      continue
    }
    const rowBytes = tensor.shape[1] * 2
    const rows = (first: number, count: number) => tensor.data.subarray(first * rowBytes, (first + count) * rowBytes)
    const part = (first: number, count: number) =>
      Array.from({ length: keyHeads }, (_, head) => rows(head * (2 * key + 2 * value) + first, count))
    const qkv = [...part(0, key), ...part(key, key), ...part(2 * key, value)]
    const joined = (parts: Uint8Array[]) => {
      const data = Buffer.concat(parts)
      return { ...tensor, shape: [data.length / rowBytes, tensor.shape[1]], data }
    }
    const at = name.replace('linear_attn.in_proj_qkvz', 'self_attn.qkv')
    out.set(at, joined(qkv))
    out.set(at.replace('.qkv.', '.gate.'), joined(part(2 * key + value, value)))
  }
  return out
}

function ggufMetadata(name: GgufFamily) {
  const config = familyConfig(name)
  const architecture = { qwen3_moe: 'qwen3moe', qwen3_next: 'qwen3next', glm4_moe: 'glm4moe', gpt_oss: 'gpt-oss' }[name]
  const number = (field: string) => config[field] as number
  const factor = (config.partial_rotary_factor as number | undefined) ?? 1
  const numbers: Record<string, number> = {
    block_count: number('num_hidden_layers') + (name === 'glm4_moe' ? 1 : 0),
    embedding_length: number('hidden_size'),
    context_length: number('max_position_embeddings'),
    'attention.head_count': number('num_attention_heads'),
    'attention.head_count_kv': number('num_key_value_heads'),
    'attention.key_length': number('head_dim'),
    'rope.dimension_count': number('head_dim') * factor,
    expert_count: number(
      { glm4_moe: 'n_routed_experts', gpt_oss: 'num_local_experts' }[name as string] ?? 'num_experts',
    ),
    expert_used_count: number('num_experts_per_tok'),
    expert_feed_forward_length: number(name === 'gpt_oss' ? 'intermediate_size' : 'moe_intermediate_size'),
  }
  if (name === 'qwen3_next') {
    Object.assign(numbers, {
      full_attention_interval: 4,
      expert_shared_feed_forward_length: number('shared_expert_intermediate_size'),
      'ssm.conv_kernel': 4,
      'ssm.state_size': number('linear_key_head_dim'),
      'ssm.group_count': number('linear_num_key_heads'),
      'ssm.time_step_rank': number('linear_num_value_heads'),
      'ssm.inner_size': number('linear_num_value_heads') * number('linear_value_head_dim'),
    })
  }
  if (name === 'glm4_moe') {
    Object.assign(numbers, {
      nextn_predict_layers: 1,
      leading_dense_block_count: number('first_k_dense_replace'),
      feed_forward_length: number('intermediate_size'),
      expert_shared_count: number('n_shared_experts'),
      expert_group_count: number('n_group'),
      expert_group_used_count: number('topk_group'),
      expert_gating_func: 2,
    })
  }
  if (name === 'gpt_oss') {
    Object.assign(numbers, {
      'attention.sliding_window': number('sliding_window'),
      'rope.scaling.factor': 32,
      'rope.scaling.original_context_length': 4096,
    })
  }
  const scale = name === 'glm4_moe' ? [[`${architecture}.expert_weights_scale`, f32(2.5)] as const] : []
  return [
    ['general.architecture', text(architecture)] as const,
    ...Object.entries(numbers).map(([key, value]) => [`${architecture}.${key}`, u32(value)] as const),
    [`${architecture}.attention.layer_norm_rms_epsilon`, f32(number('rms_norm_eps'))] as const,
    [`${architecture}.rope.freq_base`, f32(number('rope_theta'))] as const,
    ...scale,
  ]
}
