// A model as people download it, MLX, Hugging Face or GGUF, seen through one pair of glasses: names without prefixes, matrices
// and vectors by the packed folder's names, experts one by one whatever their layout. Reads headers only; says where the
// bytes are, and what they need on the way.
import { FormatError, TensorError } from '../../base/errors.js'
import { blockFormat, blockScaleBytes, checkBlock } from '../../model/blockFormats.js'
import { type ModelConfig, withDraftHead } from '../../model/config.js'
import type { Projection } from '../../model/expertLayout.js'
import { familyNamed } from '../../model/families/families.js'
import type { Family } from '../../model/families/family.js'
import { QUANT_BITS, QUANT_GROUPS } from '../../model/quantize.js'
import { DRAFT_HEAD_MARK, type MatrixSpec, type VectorSpec } from '../../model/tensorPlan.js'
import type { QuantBits, QuantGroup } from '../../model/tensors.js'
import type { ShardedModel, SourceTensor } from './shardedModel.js'
import { SourceExperts } from './sourceExperts.js'
import { checkShape, checkType, floatType, type SourceMatrix, type SourceVector, sliceOf } from './sourceMatrix.js'

export class SourceModel {
  readonly layout: 'mlx' | 'hf' | 'gguf'
  /** Some of its matrices are quantized already: bytes are moved, never quantized again. */
  readonly isQuantized: boolean
  private readonly tensors = new Map<string, SourceTensor>()
  private readonly family: Family
  private readonly experts: SourceExperts

  /** With a head for drafts where the checkpoint carries one. */
  readonly config: ModelConfig

  constructor(
    readonly sharded: ShardedModel,
    config: ModelConfig,
  ) {
    this.family = familyNamed(config.family)
    for (const tensor of sharded.tensors.values()) {
      const name = packedName(tensor.name, this.family)
      const other = this.tensors.get(name)
      if (other !== undefined) {
        const detail = `tensors ${tensor.name} and ${other.name} are both ${name}`
        throw new FormatError('TENSOR_TWICE', tensor.source.name, detail)
      }
      this.tensors.set(name, tensor)
    }
    this.config = this.has(DRAFT_HEAD_MARK) ? withDraftHead(config) : config
    this.experts = new SourceExperts(this, this.config, this.family)
    this.layout = this.detectLayout()
    this.isQuantized = [...this.tensors.keys()].some(name => /[._]scales$/.test(name))
  }

  matrix({ name, rows, cols }: MatrixSpec): SourceMatrix {
    const part = this.has(`${name}.weight`) ? null : (this.family.source.rowsOf?.(name, this.config) ?? null)
    if (part === null) return this.matrixIn(name, rows, cols, 1, 0)
    return { ...this.matrixIn(part.name, part.rows, cols, 1, 0), rows, rowOf: part.rowOf }
  }

  vector({ name, length }: VectorSpec): SourceVector {
    const tensor = this.find(name)
    const count = tensor.shape.reduce((product, dim) => product * dim, 1)
    if (count !== length)
      throw new TensorError(name, `the shape is [${tensor.shape}], want ${length} values`, tensor.source.name)
    return { name, shape: tensor.shape, type: floatType(tensor), data: sliceOf(tensor, 1, 0) }
  }

  expert(layer: number, expert: number, projection: Projection): SourceMatrix {
    return this.experts.matrix(layer, expert, projection)
  }

  expertBias(layer: number, expert: number, projection: Projection): SourceVector {
    return this.experts.bias(layer, expert, projection)
  }

  has(name: string): boolean {
    return this.tensors.has(name)
  }

  /** Matrix `index` of the `count` that are stacked in the tensors of this name. */
  matrixIn(name: string, rows: number, cols: number, count: number, index: number): SourceMatrix {
    const stack = count === 1 && !name.includes('switch_mlp') ? [] : [count]
    const tensor = this.find(`${name}.weight`)
    const weight = sliceOf(tensor, count, index)
    const scales = this.tensors.get(`${name}.scales`)
    if (scales === undefined) {
      const type = floatType(tensor)
      checkShape(tensor, [...stack, rows, cols])
      return { kind: 'plain', name, rows, cols, type, weight }
    }
    if (scales.dtype === 'U8') return this.blocksIn(name, rows, cols, stack, index)
    const biases = this.find(`${name}.biases`)
    const scaleType = scales.dtype
    if ((scaleType !== 'BF16' && scaleType !== 'F16') || biases.dtype !== scaleType) {
      const detail = `scales are ${scaleType} and biases ${biases.dtype}, want both BF16 or both F16`
      throw new TensorError(scales.name, detail, scales.source.name)
    }
    checkType(tensor, 'U32')
    // Shapes say exactly what the bits and the group are, for each tensor by itself.
    const bits = ((tensor.shape.at(-1) ?? 0) * 32) / cols
    const group = cols / (scales.shape.at(-1) ?? 0)
    if (!isBits(bits) || !isGroup(group)) {
      const detail = `${bits} bits in groups of ${group}, want 2, 4 or 8 bits in groups of 32, 64 or 128`
      const shapes = `the shapes [${tensor.shape}] and [${scales.shape}] mean ${detail}`
      throw new TensorError(tensor.name, shapes, tensor.source.name)
    }
    checkShape(tensor, [...stack, rows, (cols * bits) / 32])
    checkShape(scales, [...stack, rows, cols / group])
    checkShape(biases, [...stack, rows, cols / group])
    return {
      kind: 'quantized',
      name,
      rows,
      cols,
      bits,
      group,
      scaleType,
      weight,
      scales: sliceOf(scales, count, index),
      biases: sliceOf(biases, count, index),
    }
  }

  /** Of the format that metadata says; without such it is MLX's MXFP4, eight codes a word, the exponents as scales. */
  private blocksIn(name: string, rows: number, cols: number, stack: readonly number[], index: number): SourceMatrix {
    const weight = this.find(`${name}.weight`)
    const scales = this.find(`${name}.scales`)
    const [word, wantedSpan] = this.sharded.blocks.get(name)?.split(' ') ?? ['mxfp4', '0']
    const { block, span } = checkBlock(name, word, Number(wantedSpan), cols)
    const format = blockFormat(block)
    checkType(weight, 'U32')
    checkShape(weight, [...stack, rows, (cols * format.bits) / 32])
    checkShape(scales, [...stack, rows, blockScaleBytes(format, span, cols)])
    const count = stack[0] ?? 1
    const place = { name, rows, cols, weight: sliceOf(weight, count, index), scales: sliceOf(scales, count, index) }
    return { kind: 'blocks', block, span, ...place }
  }

  find(name: string): SourceTensor {
    const tensor = this.tensors.get(name)
    if (tensor === undefined) throw new TensorError(name, 'is missing', this.sharded.folder.location)
    return tensor
  }

  /** The convolution is [C, 1, 4] in HF and [C, 4, 1] in MLX; the same bytes. Models without one go by their metadata. */
  private detectLayout(): 'mlx' | 'hf' | 'gguf' {
    if (this.sharded.format === 'gguf') return 'gguf'
    const layer = this.config.layerKinds.indexOf('linear_attention')
    if (layer < 0) return this.sharded.format === 'mlx' ? 'mlx' : 'hf'
    const conv = this.find(`model.layers.${layer}.linear_attn.conv1d.weight`)
    const { linearConvDim: channels, linearConvKernel: taps } = this.config
    const shape = conv.shape.join()
    if (shape === `${channels},1,${taps}`) return 'hf'
    if (shape === `${channels},${taps},1`) return 'mlx'
    const detail = `the shape is [${shape}], want [${channels},1,${taps}] or [${channels},${taps},1]`
    throw new TensorError(conv.name, detail, conv.source.name)
  }
}

/** `language_model.` is stripped, `model.language_model.` becomes `model.`, and the family's own names follow. */
function packedName(name: string, { source }: Family): string {
  const plain = name.replace(/^language_model\./, '').replace(/^model\.language_model\./, 'model.')
  return source.renames.reduce((text, [pattern, replacement]) => text.replace(pattern, replacement), plain)
}

function isBits(bits: number): bits is QuantBits {
  return QUANT_BITS.includes(bits as QuantBits)
}

function isGroup(group: number): group is QuantGroup {
  return QUANT_GROUPS.includes(group as QuantGroup)
}
