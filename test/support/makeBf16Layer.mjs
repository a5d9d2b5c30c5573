// Writes a one-layer source model in Hugging Face's BF16 layout with the shape of a preset's layers and fused experts:
// about 2 GB for a3b. For measuring the converter's memory and speed; the values are random.
//   node test/support/makeBf16Layer.mjs <folder> [a3b|a17b] [experts]
import { closeSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'

const shapes = {
  a3b: { hidden: 2048, heads: 16, experts: 256, topK: 8, intermediate: 512, valueHeads: 32 },
  a17b: { hidden: 4096, heads: 32, experts: 512, topK: 10, intermediate: 1024, valueHeads: 64 },
}
const [folder, preset = 'a3b', expertCount] = process.argv.slice(2)
const shape = shapes[preset]
if (folder === undefined || shape === undefined)
  throw new Error('usage: makeBf16Layer.mjs <folder> [a3b|a17b] [experts]')
const { hidden, heads, topK, intermediate, valueHeads } = shape
const experts = Number(expertCount ?? shape.experts)
const [headDim, keyHeads, linearDim, vocab] = [256, 16, 128, 40960]
const convDim = 2 * keyHeads * linearDim + valueHeads * linearDim

const config = {
  architectures: ['Qwen3_5MoeForConditionalGeneration'],
  model_type: 'qwen3_5_moe',
  text_config: {
    model_type: 'qwen3_5_moe_text',
    hidden_size: hidden,
    num_hidden_layers: 1,
    num_attention_heads: heads,
    num_key_value_heads: 2,
    head_dim: headDim,
    vocab_size: vocab,
    num_experts: experts,
    num_experts_per_tok: topK,
    moe_intermediate_size: intermediate,
    shared_expert_intermediate_size: intermediate,
    layer_types: ['linear_attention'],
    full_attention_interval: 4,
    linear_num_value_heads: valueHeads,
    linear_num_key_heads: keyHeads,
    linear_key_head_dim: linearDim,
    linear_value_head_dim: linearDim,
    linear_conv_kernel_dim: 4,
    rms_norm_eps: 1e-6,
    max_position_embeddings: 4096,
    rope_parameters: { rope_type: 'default', rope_theta: 1e7, partial_rotary_factor: 0.25 },
  },
}

const layer = 'model.language_model.layers.0.'
const tensors = [
  ['lm_head.weight', [vocab, hidden]],
  ['model.language_model.embed_tokens.weight', [vocab, hidden]],
  [`${layer}input_layernorm.weight`, [hidden]],
  [`${layer}linear_attn.A_log`, [valueHeads]],
  [`${layer}linear_attn.conv1d.weight`, [convDim, 1, 4]],
  [`${layer}linear_attn.dt_bias`, [valueHeads]],
  [`${layer}linear_attn.in_proj_a.weight`, [valueHeads, hidden]],
  [`${layer}linear_attn.in_proj_b.weight`, [valueHeads, hidden]],
  [`${layer}linear_attn.in_proj_qkv.weight`, [convDim, hidden]],
  [`${layer}linear_attn.in_proj_z.weight`, [valueHeads * linearDim, hidden]],
  [`${layer}linear_attn.norm.weight`, [linearDim]],
  [`${layer}linear_attn.out_proj.weight`, [hidden, valueHeads * linearDim]],
  [`${layer}mlp.experts.down_proj`, [experts, hidden, intermediate]],
  [`${layer}mlp.experts.gate_up_proj`, [experts, 2 * intermediate, hidden]],
  [`${layer}mlp.gate.weight`, [experts, hidden]],
  [`${layer}mlp.shared_expert.down_proj.weight`, [hidden, intermediate]],
  [`${layer}mlp.shared_expert.gate_proj.weight`, [intermediate, hidden]],
  [`${layer}mlp.shared_expert.up_proj.weight`, [intermediate, hidden]],
  [`${layer}mlp.shared_expert_gate.weight`, [1, hidden]],
  [`${layer}post_attention_layernorm.weight`, [hidden]],
  ['model.language_model.norm.weight', [hidden]],
]

let end = 0
const header = { __metadata__: { format: 'pt' } }
for (const [name, dims] of tensors) {
  const size = dims.reduce((product, dim) => product * dim, 2)
  header[name] = { dtype: 'BF16', shape: dims, data_offsets: [end, end + size] }
  end += size
}
const json = Buffer.from(JSON.stringify(header))
const padded = Buffer.concat([json, Buffer.alloc((8 - (json.length % 8)) % 8, ' ')])
const length = Buffer.alloc(8)
length.writeBigUInt64LE(BigInt(padded.length))

// 64 MiB of small random weights, repeated from a shifting start.
const noise = new Uint16Array(2 ** 25)
let state = 1
for (let i = 0; i < noise.length; i++) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0
  noise[i] = ((state >>> 16) & 0x8000) | 0x3c00 | ((state >>> 8) & 0xff) // ±(0.0078 to 0.031)
}
const bytes = Buffer.from(noise.buffer)

mkdirSync(folder, { recursive: true })
writeFileSync(join(folder, 'config.json'), JSON.stringify(config, null, 2))
const file = openSync(join(folder, 'model.safetensors'), 'w')
writeSync(file, length)
writeSync(file, padded)
for (let done = 0; done < end; ) {
  const start = (done / 7) & ~1 & (2 ** 20 - 1)
  done += writeSync(file, bytes, start, Math.min(bytes.length - start, end - done))
}
closeSync(file)
console.log(`${folder}: ${end} bytes of weights, ${experts} experts`)
