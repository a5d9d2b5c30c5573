#!/usr/bin/env node
import crypto from 'node:crypto'
// Writes a random-weight `qwen35moe` or (with `intermediate`) dense `qwen35` GGUF that llama.cpp loads and runs: the same
// metadata keys, tensor names and shapes as llama.cpp's converter (conversion/qwen.py, Qwen3_5MoeTextModel).
//   node src/lab/peers/makeGguf.mjs --preset bench-1g --out model.gguf [--type Q4_0] [--layers 4] [--seed 1] ...
// Any preset field is also a flag (--experts 128). No dependencies; streams to disk.
import fs from 'node:fs'
import { parseArgs } from 'node:util'

const A3B = {
  // Qwen3.5-35B-A3B / Qwen3.6-35B-A3B
  hidden: 2048,
  layers: 40,
  experts: 256,
  topk: 8,
  moeIntermediate: 512,
  shared: 512,
  intermediate: 0, // of a dense model, which has no experts
  tied: 0, // 1: the embeddings are the head
  heads: 16,
  kvHeads: 2,
  headDim: 256,
  linearKHeads: 16,
  linearVHeads: 32,
  linearHeadDim: 128,
  convKernel: 4,
  fullInterval: 4,
  vocab: 248320,
  seed: 1,
}
const PRESETS = {
  tiny: {
    ...A3B,
    hidden: 256,
    layers: 4,
    experts: 16,
    topk: 4,
    moeIntermediate: 256,
    shared: 256,
    heads: 4,
    linearKHeads: 2,
    linearVHeads: 4,
    vocab: 4096,
  },
  'bench-1g': { ...A3B, layers: 4, experts: 64, vocab: 32768 },
  'a3b-8l': { ...A3B, layers: 8 },
  'a3b-full': A3B,
  'qwen3.5-4b': { ...A3B, hidden: 2560, layers: 32, kvHeads: 4, intermediate: 9216, tied: 1 },
}

const flags = Object.fromEntries(Object.keys(A3B).map(k => [k, { type: 'string' }]))
const { values: args } = parseArgs({
  options: {
    ...flags,
    preset: { type: 'string', default: 'bench-1g' },
    out: { type: 'string' },
    type: { type: 'string', default: 'Q4_0' }, // weights: Q4_0 (4.5 bpw), Q4_1 (5.0), Q4_K (4.5), IQ4_XS (4.25)
    expertType: { type: 'string' }, // routed experts only; default: --type
  },
})
if (!PRESETS[args.preset] || !args.out) {
  console.error(
    `usage: make-gguf.mjs --preset ${Object.keys(PRESETS).join('|')} --out FILE [--type Q4_0|Q4_1|Q4_K|IQ4_XS] [--FIELD N]`,
  )
  process.exit(2)
}
const c = { ...PRESETS[args.preset] }
for (const k of Object.keys(A3B)) if (args[k] !== undefined) c[k] = Number(args[k])

// ---- random source: AES-CTR keystream, seeded, fast ----
const cipher = crypto.createCipheriv(
  'aes-128-ctr',
  crypto.createHash('md5').update(`moeflux-${c.seed}`).digest(),
  Buffer.alloc(16),
)
const zeros = Buffer.alloc(18 * 144 * 136 * 20) // a multiple of every block size; 7 MB
const randomBytes = n => cipher.update(n === zeros.length ? zeros : zeros.subarray(0, n))
const uniform = () => randomBytes(4).readUInt32LE() / 2 ** 32
function gaussians(n, std, mean = 0) {
  const out = new Float32Array(n),
    u = randomBytes(n * 8)
  for (let i = 0; i < n; i++) {
    const a = (u.readUInt32LE(i * 8) + 1) / 2 ** 32,
      b = u.readUInt32LE(i * 8 + 4) / 2 ** 32
    out[i] = mean + std * Math.sqrt(-2 * Math.log(a)) * Math.cos(2 * Math.PI * b)
  }
  return out
}
function half(x) {
  // float -> IEEE half bits; normals, subnormals flushed towards the nearest
  const f = new DataView(new ArrayBuffer(4))
  f.setFloat32(0, x)
  const b = f.getUint32(0),
    s = (b >>> 16) & 0x8000,
    e = ((b >>> 23) & 255) - 112,
    m = (b >>> 13) & 0x3ff
  return e <= 0 ? s | Math.round(Math.abs(x) * 2 ** 24) : s | (e << 10) | m
}
// 16 half scales around +-d: the random sign makes the weights' mean zero
const scaleTable = d => Uint16Array.from({ length: 16 }, (_, i) => half((i & 8 ? -1 : 1) * d * (0.75 + (i & 7) / 14)))

// ---- quantized block types: [ggml type id, weights per block, bytes per block, fill(buf, std)] ----
const TYPES = {
  F32: { id: 0, n: 1, bytes: 4 },
  Q4_0: {
    id: 2,
    n: 32,
    bytes: 18,
    ftype: 2,
    fill(b, std) {
      // w = d (q - 8)
      const t = scaleTable(std / 4.64)
      for (let o = 0; o < b.length; o += 18) {
        const d = t[b[o] & 15]
        b[o] = d
        b[o + 1] = d >> 8
      }
    },
  },
  Q4_1: {
    id: 3,
    n: 32,
    bytes: 20,
    ftype: 3,
    fill(b, std) {
      // w = d q + m, m = -7.5 d
      const t = scaleTable(std / 4.61),
        tm = scaleTable((-7.5 * std) / 4.61)
      for (let o = 0; o < b.length; o += 20) {
        const i = b[o] & 15
        b[o] = t[i]
        b[o + 1] = t[i] >> 8
        b[o + 2] = tm[i]
        b[o + 3] = tm[i] >> 8
      }
    },
  },
  Q4_K: {
    id: 12,
    n: 256,
    bytes: 144,
    ftype: 14,
    fill(b, std) {
      // w = d sc q - dmin m, here sc = m and dmin = 7.5 d
      const t = scaleTable(std / 4.61 / 36.4),
        tm = scaleTable((7.5 * std) / 4.61 / 36.4)
      for (let o = 0; o < b.length; o += 144) {
        const i = b[o] & 15
        b[o] = t[i]
        b[o + 1] = t[i] >> 8
        b[o + 2] = tm[i]
        b[o + 3] = tm[i] >> 8
        for (let j = 4; j < 8; j++) {
          b[o + j + 4] = b[o + j]
          b[o + j + 8] = (b[o + j + 8] & 15) * 17
        }
      }
    },
  },
  IQ4_XS: {
    id: 23,
    n: 256,
    bytes: 136,
    ftype: 30,
    fill(b, std) {
      // w = d (ls - 32) codebook[q]
      const t = scaleTable(std / 69 / 18.5)
      for (let o = 0; o < b.length; o += 136) {
        const d = t[b[o] & 15]
        b[o] = d
        b[o + 1] = d >> 8
      }
    },
  },
}
const W = args.type,
  E = args.expertType ?? args.type
for (const t of [W, E]) if (!TYPES[t]?.fill) throw new Error(`unknown weight type ${t}`)

// ---- metadata ----
const kvs = []
const str = s => {
  const b = Buffer.from(s, 'utf8'),
    n = Buffer.alloc(8)
  n.writeBigUInt64LE(BigInt(b.length))
  return Buffer.concat([n, b])
}
const u32 = x => {
  const b = Buffer.alloc(4)
  b.writeUInt32LE(x >>> 0)
  return b
}
const u64 = x => {
  const b = Buffer.alloc(8)
  b.writeBigUInt64LE(BigInt(x))
  return b
}
const f32 = x => {
  const b = Buffer.alloc(4)
  b.writeFloatLE(x)
  return b
}
const ENC = {
  u32: [4, u32],
  i32: [5, x => u32(x)],
  f32: [6, f32],
  bool: [7, x => Buffer.from([x ? 1 : 0])],
  str: [8, str],
}
const kv = (key, type, value) => kvs.push(Buffer.concat([str(key), u32(ENC[type][0]), ENC[type][1](value)]))
const kvArray = (key, type, values) =>
  kvs.push(Buffer.concat([str(key), u32(9), u32(ENC[type][0]), u64(values.length), ...values.map(ENC[type][1])]))

const isDense = c.intermediate > 0
const P = isDense ? 'qwen35' : 'qwen35moe'
kv('general.architecture', 'str', P)
kv('general.type', 'str', 'model')
kv('general.name', 'str', `random-${args.preset}`)
kv(`${P}.block_count`, 'u32', c.layers)
kv(`${P}.context_length`, 'u32', 262144)
kv(`${P}.embedding_length`, 'u32', c.hidden)
kv(`${P}.attention.head_count`, 'u32', c.heads)
kv(`${P}.attention.head_count_kv`, 'u32', c.kvHeads)
kvArray(`${P}.rope.dimension_sections`, 'i32', [11, 11, 10, 0]) // required by the loader
kv(`${P}.rope.freq_base`, 'f32', 1e7)
kv(`${P}.attention.layer_norm_rms_epsilon`, 'f32', 1e-6)
if (isDense) kv(`${P}.feed_forward_length`, 'u32', c.intermediate)
else {
  kv(`${P}.expert_count`, 'u32', c.experts)
  kv(`${P}.expert_used_count`, 'u32', c.topk)
  kv(`${P}.expert_feed_forward_length`, 'u32', c.moeIntermediate)
  kv(`${P}.expert_shared_feed_forward_length`, 'u32', c.shared)
}
kv(`${P}.attention.key_length`, 'u32', c.headDim)
kv(`${P}.attention.value_length`, 'u32', c.headDim)
kv('general.file_type', 'u32', TYPES[W].ftype)
kv(`${P}.ssm.conv_kernel`, 'u32', c.convKernel)
kv(`${P}.ssm.state_size`, 'u32', c.linearHeadDim) // linear_key_head_dim
kv(`${P}.ssm.group_count`, 'u32', c.linearKHeads) // linear_num_key_heads
kv(`${P}.ssm.time_step_rank`, 'u32', c.linearVHeads) // linear_num_value_heads
kv(`${P}.ssm.inner_size`, 'u32', c.linearHeadDim * c.linearVHeads)
kv(`${P}.full_attention_interval`, 'u32', c.fullInterval)
kv(`${P}.rope.dimension_count`, 'u32', c.headDim / 4) // partial_rotary_factor 0.25
kv('general.quantization_version', 'u32', 2)

// A synthetic byte-level BPE vocabulary: 256 bytes, 26 x 26 letter pairs with merges, fillers, 3 control tokens.
const printable = []
for (let b = 0; b < 256; b++) if ((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174) printable.push(b)
const isPrintable = new Set(printable)
const bytes = [
  ...printable.map(b => String.fromCodePoint(b)),
  ...[...Array(256).keys()].filter(b => !isPrintable.has(b)).map((_, i) => String.fromCodePoint(256 + i)),
]
const az = [...'abcdefghijklmnopqrstuvwxyz']
const merges = az.flatMap(a => az.map(b => `${a} ${b}`))
const special = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
const tokens = [...bytes, ...merges.map(m => m.replace(' ', ''))]
if (c.vocab < tokens.length + special.length) throw new Error('vocab too small')
while (tokens.length < c.vocab - special.length) tokens.push(`\u0120w${tokens.length}`) // 'Ġw1234'
tokens.push(...special)
kv('tokenizer.ggml.model', 'str', 'gpt2')
kv('tokenizer.ggml.pre', 'str', 'qwen35')
kvArray('tokenizer.ggml.tokens', 'str', tokens)
kvArray(
  'tokenizer.ggml.token_type',
  'i32',
  tokens.map((_, i) => (i >= c.vocab - special.length ? 3 : 1)),
)
kvArray('tokenizer.ggml.merges', 'str', merges)
kv('tokenizer.ggml.eos_token_id', 'u32', c.vocab - 1)
kv('tokenizer.ggml.padding_token_id', 'u32', c.vocab - 3)
kv('tokenizer.ggml.add_bos_token', 'bool', false)

// ---- tensors (ggml order: ne[0] is the contiguous, input dimension) ----
const tensors = []
const add = (name, ne, type, init) => {
  const t = TYPES[type],
    n = ne.reduce((a, b) => a * b, 1)
  if (ne[0] % t.n) throw new Error(`${name}: row of ${ne[0]} is not a multiple of ${t.n} (${type})`)
  tensors.push({ name, ne, type, n, size: (n / t.n) * t.bytes, init })
}
const weight = (name, ne, type = W) => add(name, ne, type, { std: 1 / Math.sqrt(ne[0]) })
const f32t = (name, ne, init) => add(name, ne, 'F32', init)
const norm = (name, n) => f32t(name, [n], { std: 0.02, mean: 1 }) // the converter stores 1 + w

const { hidden: H, headDim: D } = c
const keyDim = c.linearHeadDim * c.linearKHeads,
  valueDim = c.linearHeadDim * c.linearVHeads
weight('token_embd.weight', [H, c.vocab])
norm('output_norm.weight', H)
if (!c.tied) weight('output.weight', [H, c.vocab])
for (let l = 0; l < c.layers; l++) {
  const b = s => `blk.${l}.${s}`
  norm(b('attn_norm.weight'), H)
  norm(b('post_attention_norm.weight'), H)
  if ((l + 1) % c.fullInterval === 0) {
    weight(b('attn_q.weight'), [H, D * c.heads * 2]) // per head: query, then gate
    weight(b('attn_k.weight'), [H, D * c.kvHeads])
    weight(b('attn_v.weight'), [H, D * c.kvHeads])
    weight(b('attn_output.weight'), [D * c.heads, H])
    norm(b('attn_q_norm.weight'), D)
    norm(b('attn_k_norm.weight'), D)
  } else {
    weight(b('attn_qkv.weight'), [H, 2 * keyDim + valueDim])
    weight(b('attn_gate.weight'), [H, valueDim])
    f32t(b('ssm_conv1d.weight'), [c.convKernel, 2 * keyDim + valueDim], { std: 0.5 })
    f32t(b('ssm_dt.bias'), [c.linearVHeads], { fn: () => Math.log(Math.expm1(0.001 * 100 ** uniform())) }) // softplus^-1 of 0.001..0.1
    f32t(b('ssm_a'), [c.linearVHeads], { fn: () => -(0.1 + 15.9 * uniform()) }) // -exp(A_log)
    weight(b('ssm_beta.weight'), [H, c.linearVHeads])
    weight(b('ssm_alpha.weight'), [H, c.linearVHeads])
    norm(b('ssm_norm.weight'), c.linearHeadDim)
    weight(b('ssm_out.weight'), [valueDim, H])
  }
  if (isDense) {
    weight(b('ffn_gate.weight'), [H, c.intermediate])
    weight(b('ffn_up.weight'), [H, c.intermediate])
    weight(b('ffn_down.weight'), [c.intermediate, H])
    continue
  }
  f32t(b('ffn_gate_inp.weight'), [H, c.experts], { std: 1 / Math.sqrt(H) })
  weight(b('ffn_gate_exps.weight'), [H, c.moeIntermediate, c.experts], E)
  weight(b('ffn_up_exps.weight'), [H, c.moeIntermediate, c.experts], E)
  weight(b('ffn_down_exps.weight'), [c.moeIntermediate, H, c.experts], E)
  f32t(b('ffn_gate_inp_shexp.weight'), [H], { std: 1 / Math.sqrt(H) })
  weight(b('ffn_gate_shexp.weight'), [H, c.shared])
  weight(b('ffn_up_shexp.weight'), [H, c.shared])
  weight(b('ffn_down_shexp.weight'), [c.shared, H])
}

// ---- write ----
const pad = n => (32 - (n % 32)) % 32
let offset = 0
const infos = tensors.map(t => {
  const info = Buffer.concat([str(t.name), u32(t.ne.length), ...t.ne.map(u64), u32(TYPES[t.type].id), u64(offset)])
  offset += t.size + pad(t.size)
  return info
})
const header = Buffer.concat([Buffer.from('GGUF'), u32(3), u64(tensors.length), u64(kvs.length), ...kvs, ...infos])
const fd = fs.openSync(args.out, 'w')
const write = b => {
  for (let o = 0; o < b.length; ) o += fs.writeSync(fd, b, o)
}
write(header)
write(Buffer.alloc(pad(header.length)))
for (const t of tensors) {
  const { std = 1, mean = 0, fn } = t.init
  if (t.type === 'F32') {
    const v = fn ? Float32Array.from({ length: t.n }, fn) : gaussians(t.n, std, mean)
    write(Buffer.from(v.buffer))
  } else {
    for (let left = t.size; left > 0; ) {
      const b = randomBytes(Math.min(left, zeros.length))
      TYPES[t.type].fill(b, std)
      write(b)
      left -= b.length
    }
  }
  write(Buffer.alloc(pad(t.size)))
}
fs.closeSync(fd)
const params = tensors.reduce((a, t) => a + t.n, 0)
const expert = tensors.filter(t => t.name.endsWith('_exps.weight')).reduce((a, t) => a + t.size, 0)
console.log(
  JSON.stringify({
    out: args.out,
    preset: args.preset,
    type: W,
    expertType: E,
    params,
    bytes: header.length + pad(header.length) + offset,
    expertBytes: expert,
    bytesPerExpert: expert / c.layers / c.experts,
    expertBytesPerToken: (expert / c.experts) * c.topk,
  }),
)
