// A small model of random shapes, formats and weights that exists in memory alone: what a backend must compute like the
// reference, wherever its kernels are cut.
import { type BlockChecksums, BlockSummer, expertBlockBytes } from '#moeflux/files/packed/blockChecksums.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import { type ModelConfig, parseConfig, withDraftHead } from '#moeflux/model/config.js'
import { type ExpertFormats, expertLayout, expertParts, type MatrixFormat } from '#moeflux/model/expertLayout.js'
import { NO_EXPERTS } from '#moeflux/model/families/family.js'
import { float32ToBfloat16, float32ToFloat16 } from '#moeflux/model/floats.js'
import { type LayerShape, moeLayers } from '#moeflux/model/layers.js'
import { resolveTensors, type StoredTensor } from '#moeflux/model/resolveTensors.js'
import { listSpecs, planTensors } from '#moeflux/model/tensorPlan.js'
import type { ExpertLayout, QuantBits, QuantGroup } from '#moeflux/model/tensors.js'
import { memoryFolder, memorySource } from '../faults/memoryFiles.js'
import { randomFloats, seededRandom } from '../random.js'

export interface RandomShape {
  readonly hidden: number
  readonly heads: number
  readonly kvHeads: number
  readonly headDim: number
  readonly keyHeads: number
  readonly valueHeads: number
  readonly keyDim: number
  readonly valueDim: number
  readonly experts: number
  readonly k: number
  readonly intermediate: number
  readonly sharedIntermediate: number
  readonly vocab: number
  readonly tied: boolean
  readonly layers: readonly ('linear_attention' | 'full_attention')[]
  /** What the layers are, where they are others than those of `qwen3_5_moe`; as many as `layers`, and of their mixers. */
  readonly kinds?: readonly LayerShape[]
  /** Of each resident matrix in turn, over and over; null: plain BF16. */
  readonly formats: readonly (RandomFormat | null)[]
  readonly expertFormats: readonly [gate: RandomFormat | null, up: RandomFormat | null, down: RandomFormat | null]
  /** With a head for drafts. */
  readonly head?: boolean
  readonly seed: number
}

export interface RandomFormat {
  readonly bits: QuantBits
  readonly group: QuantGroup
  readonly scaleType: 'BF16' | 'F16'
}

export function randomModel(shape: RandomShape): PackedModel {
  const random = seededRandom(shape.seed)
  const plain = withKinds(parseConfig(configOf(shape)), shape.kinds)
  const config = shape.head ? withDraftHead(plain) : plain
  const stored = new Map<string, StoredTensor>()
  const chunks: { offset: number; bytes: Uint8Array }[] = []
  let size = 0
  const add = (name: string, dims: readonly number[], dtype: string, bytes: Uint8Array, more: object = {}) => {
    stored.set(name, { offset: size, size: bytes.length, shape: dims, dtype, ...more })
    chunks.push({ offset: size, bytes })
    size = Math.ceil((size + bytes.length) / 64) * 64
  }
  let matrices = 0
  for (const spec of listSpecs(planTensors(config))) {
    if (spec.kind === 'vector') {
      // Norms near 1, all else around 0; a selection bias leaves the choice to the scores.
      const isNorm = /norm/.test(spec.name)
      const size = isNorm ? 0.3 : /correction/.test(spec.name) ? 0.1 : 1
      const values = randomFloats(random, spec.length, size).map(value => (isNorm ? 1 + value : value))
      const dims = /conv1d/.test(spec.name) ? [config.linearConvDim, 4, 1] : [spec.length]
      add(spec.name, dims, 'F32', new Uint8Array(values.buffer))
      continue
    }
    const format = fitting(shape.formats[matrices++ % shape.formats.length], spec.cols)
    const parts = randomMatrix(random, spec.rows, spec.cols, format)
    if (format === null) add(`${spec.name}.weight`, [spec.rows, spec.cols], 'BF16', parts.weight)
    else {
      const more = { bits: format.bits, groupSize: format.group }
      const groups = [spec.rows, spec.cols / format.group]
      add(`${spec.name}.weight`, [spec.rows, (spec.cols * format.bits) / 32], 'U32', parts.weight, more)
      add(`${spec.name}.scales`, groups, format.scaleType, parts.scales)
      add(`${spec.name}.biases`, groups, format.scaleType, parts.biases)
    }
  }
  const bytes = new Uint8Array(size)
  for (const chunk of chunks) bytes.set(chunk.bytes, chunk.offset)
  const [gate, up, down] = shape.expertFormats
  const formats = {
    gate: layoutFormat(fitting(gate, shape.hidden)),
    up: layoutFormat(fitting(up, shape.hidden)),
    down: layoutFormat(fitting(down, shape.intermediate)),
  }
  const layout = expertLayout(config, expertParts(config, formats), 'packed_experts')
  const records = config.expertLayers.map(() => randomExperts(random, config.numExperts, shape, formats, layout))
  const files = records.map((bytes, layer) => memorySource(bytes, `experts ${layer}`))
  const weights = memorySource(bytes, 'weights')
  return {
    name: 'random',
    folder: memoryFolder(new Map()),
    config,
    tensors: resolveTensors(config, stored, weights),
    weights,
    experts: {
      layout,
      layouts: config.expertLayers.map(() => layout),
      files,
      checksums: checksumsOf(records, layout.expertSize),
    },
    fingerprint: `random ${shape.seed}`,
    async close() {},
  }
}

function withKinds(config: ModelConfig, layers: readonly LayerShape[] | undefined): ModelConfig {
  if (layers === undefined) return config
  const rope = layers.map(({ mixer }) => mixer).find(mixer => mixer.kind === 'full_attention')?.rope ?? config.rope
  const some = moeLayers(layers)
  return { ...config, layers, rope, moeLayers: some, expertLayers: some, ...(some.length === 0 ? NO_EXPERTS : {}) }
}

function checksumsOf(files: readonly Uint8Array[], recordBytes: number): BlockChecksums | null {
  if (files.length === 0) return null
  const shape = { recordBytes, blockBytes: expertBlockBytes(recordBytes) }
  const sums = files.flatMap(bytes => {
    const summer = new BlockSummer(shape)
    summer.push(bytes)
    return [...summer.finish()]
  })
  const records = files[0].length / recordBytes
  return { ...shape, files: files.length, records, sums: BigUint64Array.from(sums) }
}

function configOf(shape: RandomShape): Record<string, unknown> {
  return {
    model_type: 'qwen3_5_moe_text',
    vocab_size: shape.vocab,
    hidden_size: shape.hidden,
    num_hidden_layers: shape.layers.length,
    layer_types: shape.layers,
    num_attention_heads: shape.heads,
    num_key_value_heads: shape.kvHeads,
    head_dim: shape.headDim,
    hidden_act: 'silu',
    rms_norm_eps: 1e-6,
    attn_output_gate: true,
    tie_word_embeddings: shape.tied,
    max_position_embeddings: 1024,
    full_attention_interval: 4,
    linear_conv_kernel_dim: 4,
    linear_key_head_dim: shape.keyDim,
    linear_value_head_dim: shape.valueDim,
    linear_num_key_heads: shape.keyHeads,
    linear_num_value_heads: shape.valueHeads,
    num_experts: shape.experts,
    num_experts_per_tok: shape.k,
    norm_topk_prob: true,
    moe_intermediate_size: shape.intermediate,
    shared_expert_intermediate_size: shape.sharedIntermediate,
    eos_token_id: 0,
    rope_parameters: { rope_type: 'default', rope_theta: 1e7, partial_rotary_factor: 0.5 },
  }
}

/** The format with the largest group that the columns allow, no larger than its own. */
function fitting(format: RandomFormat | null, cols: number): RandomFormat | null {
  if (format === null) return null
  const group = ([128, 64, 32] as const).find(size => size <= format.group && cols % size === 0)
  return group === undefined ? null : { ...format, group }
}

function layoutFormat(format: RandomFormat | null): MatrixFormat {
  return format === null ? { kind: 'plain', type: 'BF16' } : { kind: 'quantized', ...format }
}

interface MatrixBytes {
  readonly weight: Uint8Array
  readonly scales: Uint8Array
  readonly biases: Uint8Array
}

function randomMatrix(random: () => number, rows: number, cols: number, format: RandomFormat | null): MatrixBytes {
  const none = new Uint8Array(0)
  if (format === null) {
    const values = randomFloats(random, rows * cols, 2 / Math.sqrt(cols))
    return { weight: new Uint8Array(Uint16Array.from(values, float32ToBfloat16).buffer), scales: none, biases: none }
  }
  const { bits, group, scaleType } = format
  const weight = Uint32Array.from({ length: (rows * cols * bits) / 32 }, () => random() * 2 ** 32)
  const narrow = scaleType === 'BF16' ? float32ToBfloat16 : float32ToFloat16
  const scales = randomFloats(random, (rows * cols) / group).map(s => (s + 2) / (Math.sqrt(cols) * 2 ** (bits - 1)))
  const biases = scales.map(s => -s * 2 ** (bits - 1))
  return {
    weight: new Uint8Array(weight.buffer),
    scales: new Uint8Array(Uint16Array.from(scales, narrow).buffer),
    biases: new Uint8Array(Uint16Array.from(biases, narrow).buffer),
  }
}

function randomExperts(
  random: () => number,
  count: number,
  shape: RandomShape,
  formats: ExpertFormats,
  layout: ExpertLayout,
): Uint8Array {
  const { expertSize, gateBias, upBias, downBias } = layout
  const file = new Uint8Array(count * expertSize)
  for (let expert = 0; expert < count; expert++) {
    let at = expert * expertSize
    for (const bias of [gateBias, upBias, downBias]) {
      if (bias === null) continue
      file.set(new Uint8Array(randomFloats(random, bias.length).buffer), at + bias.data.offset)
    }
    for (const name of ['gate', 'up', 'down'] as const) {
      const format = formats[name]
      const [rows, cols] = name === 'down' ? [shape.hidden, shape.intermediate] : [shape.intermediate, shape.hidden]
      const bytes = randomMatrix(random, rows, cols, format.kind === 'quantized' ? format : null)
      for (const part of [bytes.weight, bytes.scales, bytes.biases]) {
        file.set(part, at)
        at += part.length
      }
    }
  }
  return file
}
