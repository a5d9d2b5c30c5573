// Writes a GGUF file of random blocks as large as is asked for, to try conversions with: `node test/support/makeGguf.mjs out.gguf
// [--layers 16] [--experts 128]`. Types are those of a Q4_K_M mix: Q4_K, and Q6_K in half of the down projections. A layer of
// 128 experts takes some 250 MB; memory stays at a few. Needs a build.
import { open } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { GGUF_TYPES } from '../../dist/files/gguf/ggufTypes.js'

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { layers: { type: 'string', default: '16' }, experts: { type: 'string', default: '128' } },
})
const [layers, experts] = [Number(values.layers), Number(values.experts)]
const [hidden, width, vocabulary, heads, kvHeads, headDim] = [2048, 512, 32_768, 8, 2, 256]
const [keyHeads, valueHeads, linearDim] = [16, 32, 128]
const ALIGNMENT = 32

const encoder = new TextEncoder()
const u32 = value => new Uint8Array(Uint32Array.of(value).buffer)
const u64 = value => new Uint8Array(BigUint64Array.of(BigInt(value)).buffer)
const string = value => [u64(encoder.encode(value).length), encoder.encode(value)]
const number = (key, value) => [...string(key), u32(4), u32(value)]
const float = (key, value) => [...string(key), u32(6), new Uint8Array(Float32Array.of(value).buffer)]

const numbers = {
  block_count: layers,
  context_length: 4096,
  embedding_length: hidden,
  full_attention_interval: 4,
  'attention.head_count': heads,
  'attention.head_count_kv': kvHeads,
  'attention.key_length': headDim,
  'rope.dimension_count': 64,
  expert_count: experts,
  expert_used_count: 8,
  expert_feed_forward_length: width,
  expert_shared_feed_forward_length: width,
  'ssm.conv_kernel': 4,
  'ssm.state_size': linearDim,
  'ssm.group_count': keyHeads,
  'ssm.time_step_rank': valueHeads,
  'ssm.inner_size': valueHeads * linearDim,
}
const metadata = [
  [...string('general.architecture'), u32(8), ...string('qwen35moe')],
  ...Object.entries(numbers).map(([key, value]) => number(`qwen35moe.${key}`, value)),
  float('qwen35moe.attention.layer_norm_rms_epsilon', 1e-6),
  float('qwen35moe.rope.freq_base', 1e7),
  number('tokenizer.ggml.eos_token_id', 0),
]

function* layerTensors(layer) {
  const at = `blk.${layer}.`
  const wide = layer % 2 === 0 ? 'Q6_K' : 'Q4_K'
  yield [`${at}attn_norm.weight`, 'F32', [hidden]]
  yield [`${at}post_attention_norm.weight`, 'F32', [hidden]]
  if (layer % 4 === 3) {
    yield [`${at}attn_q.weight`, 'Q4_K', [2 * heads * headDim, hidden]]
    yield [`${at}attn_k.weight`, 'Q4_K', [kvHeads * headDim, hidden]]
    yield [`${at}attn_v.weight`, wide, [kvHeads * headDim, hidden]]
    yield [`${at}attn_output.weight`, 'Q4_K', [hidden, heads * headDim]]
    yield [`${at}attn_q_norm.weight`, 'F32', [headDim]]
    yield [`${at}attn_k_norm.weight`, 'F32', [headDim]]
  } else {
    const channels = (2 * keyHeads + valueHeads) * linearDim
    yield [`${at}attn_qkv.weight`, 'Q4_K', [channels, hidden]]
    yield [`${at}attn_gate.weight`, 'Q4_K', [valueHeads * linearDim, hidden]]
    yield [`${at}ssm_alpha.weight`, 'Q4_K', [valueHeads, hidden]]
    yield [`${at}ssm_beta.weight`, 'Q4_K', [valueHeads, hidden]]
    yield [`${at}ssm_out.weight`, 'Q4_K', [hidden, valueHeads * linearDim]]
    yield [`${at}ssm_conv1d.weight`, 'F32', [channels, 4]]
    yield [`${at}ssm_a`, 'F32', [valueHeads], -1]
    yield [`${at}ssm_dt.bias`, 'F32', [valueHeads]]
    yield [`${at}ssm_norm.weight`, 'F32', [linearDim]]
  }
  yield [`${at}ffn_gate_inp.weight`, 'F32', [experts, hidden]]
  yield [`${at}ffn_gate_inp_shexp.weight`, 'F32', [hidden]]
  yield [`${at}ffn_gate_shexp.weight`, 'Q4_K', [width, hidden]]
  yield [`${at}ffn_up_shexp.weight`, 'Q4_K', [width, hidden]]
  yield [`${at}ffn_down_shexp.weight`, wide, [hidden, width]]
  yield [`${at}ffn_gate_exps.weight`, 'Q4_K', [experts, width, hidden]]
  yield [`${at}ffn_up_exps.weight`, 'Q4_K', [experts, width, hidden]]
  yield [`${at}ffn_down_exps.weight`, wide, [experts, hidden, width]]
}

const tensors = [
  ['token_embd.weight', 'Q4_K', [vocabulary, hidden]],
  ['output.weight', 'Q6_K', [vocabulary, hidden]],
  ['output_norm.weight', 'F32', [hidden]],
  ...Array.from({ length: layers }, (_, layer) => [...layerTensors(layer)]).flat(),
].map(([name, typeName, shape, value = 1]) => {
  const [id, type] = [...GGUF_TYPES].find(([, each]) => each.name === typeName)
  const size = (shape.reduce((product, each) => product * each, 1) / type.blockValues) * type.blockBytes
  return { name, id, type, shape, size, value }
})

let state = 1
/** Random blocks whose halves are small: 0x1c00 is 2^-8. */
function fillBlocks(bytes, { name, blockBytes }) {
  const words = new Uint32Array(bytes.buffer, 0, bytes.length >> 2)
  for (let i = 0; i < words.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    words[i] = state
  }
  const halves = name === 'Q6_K' ? [208] : [0, 2]
  for (let at = 0; at < bytes.length; at += blockBytes) {
    for (const half of halves) {
      bytes[at + half] = 0
      bytes[at + half + 1] = 0x04
    }
  }
}

const parts = [encoder.encode('GGUF'), u32(3), u64(tensors.length), u64(metadata.length), ...metadata.flat()]
let offset = 0
for (const { name, id, shape, size } of tensors) {
  parts.push(...string(name), u32(shape.length), ...[...shape].reverse().map(u64), u32(id), u64(offset))
  offset += Math.ceil(size / ALIGNMENT) * ALIGNMENT
}
const header = Buffer.concat(parts)
const file = await open(positionals[0], 'w')
await file.write(header)
await file.write(new Uint8Array(-header.length & (ALIGNMENT - 1)))
for (const { type, size, value } of tensors) {
  const piece = type.name === 'F32' ? size : Math.min(size, type.blockBytes * 65_536)
  const bytes = new Uint8Array(piece)
  for (let at = 0; at < size; at += piece) {
    if (type.name === 'F32') new Float32Array(bytes.buffer).fill(value)
    else fillBlocks(bytes, type)
    await file.write(bytes, 0, Math.min(piece, size - at))
  }
  await file.write(new Uint8Array(-size & (ALIGNMENT - 1)))
}
await file.close()
console.log(`${positionals[0]}: ${((header.length + offset) / 1e9).toFixed(2)} GB`)
