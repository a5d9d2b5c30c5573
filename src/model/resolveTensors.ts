// From a manifest's flat list of stored tensors to one typed table per layer, once, at open. Every tensor that the
// model's shapes ask for must be there, with its shape, inside its file. Reads nothing.
import { TensorError } from '../errors.js'
import { blockFormat, blockScaleBytes, blockSizes, checkBlock } from './blockFormats.js'
import type { ModelConfig } from './config.js'
import { FLOAT_BYTES } from './floats.js'
import { QUANT_BITS, QUANT_GROUPS, quantizedSizes } from './quantize.js'
import {
  type DensePlan,
  type DraftHeadPlan,
  type LayerPlan,
  type MatrixSpec,
  type MoePlan,
  planTensors,
  type TensorSpec,
  type VectorSpec,
} from './tensorPlan.js'
import type {
  ByteRange,
  DenseTensors,
  DraftHeadTensors,
  FloatType,
  LayerTensors,
  Matrix,
  ModelTensors,
  MoeTensors,
  QuantBits,
  QuantGroup,
  Vector,
} from './tensors.js'

/** One tensor as the manifest lists it. */
export interface StoredTensor {
  readonly offset: number
  readonly size: number
  readonly shape: readonly number[]
  readonly dtype: string
  readonly bits?: number // of U32 tensors; absent: 4
  readonly groupSize?: number // of U32 tensors; absent: 64
  readonly block?: string // of U32 tensors in blocks: a name of blockFormats.ts
  readonly span?: number // of U32 tensors in blocks; absent: 0
}

export type StoredTensors = ReadonlyMap<string, StoredTensor>

/** The file that the tensors lie in. */
interface TensorFile {
  readonly name: string
  readonly size: number
}

export function resolveTensors(config: ModelConfig, stored: StoredTensors, file: TensorFile): ModelTensors {
  const plan = planTensors(config)
  const resolver = new Resolver(stored, file)
  const embed = resolver.matrix(plan.embed)
  return {
    embed,
    norm: resolver.vector(plan.norm),
    lmHead: plan.lmHead === null ? embed : resolver.matrix(plan.lmHead),
    layers: plan.layers.map((layer, index) => resolver.layer(layer, index)),
    draftHead: plan.draftHead && resolver.draftHead(plan.draftHead, config.numLayers),
  }
}

/** A tensor in place of each spec; null where there is none. */
type Resolved<T> = {
  readonly [K in keyof T]: T[K] extends MatrixSpec
    ? Matrix
    : T[K] extends VectorSpec
      ? Vector
      : T[K] extends MatrixSpec | null
        ? Matrix | null
        : Vector | null
}

class Resolver {
  constructor(
    private readonly stored: StoredTensors,
    private readonly file: TensorFile,
  ) {}

  layer(plan: LayerPlan, layer: number): LayerTensors {
    return {
      layer,
      inputNorm: this.vector(plan.inputNorm),
      postAttentionNorm: this.vector(plan.postAttentionNorm),
      mixer:
        plan.mixer.kind === 'full_attention'
          ? { kind: plan.mixer.kind, shape: plan.mixer.shape, ...this.all(plan.mixer.tensors) }
          : { kind: plan.mixer.kind, shape: plan.mixer.shape, ...this.all(plan.mixer.tensors) },
      feedForward: plan.feedForward.kind === 'moe' ? this.moe(plan.feedForward) : this.dense(plan.feedForward),
    }
  }

  draftHead({ fc, embeddingNorm, hiddenNorm, layer, norm }: DraftHeadPlan, index: number): DraftHeadTensors {
    return { ...this.all({ fc, embeddingNorm, hiddenNorm, norm }), layer: this.layer(layer, index) }
  }

  private moe({ kind, shape, router, routerBias, selectionBias, shared }: MoePlan): MoeTensors {
    return {
      kind,
      shape,
      ...this.all({ router, routerBias, selectionBias }),
      shared: shared && { ...this.all({ gate: shared.gate }), expert: this.all(shared.expert) },
    }
  }

  private dense({ kind, shape, expert }: DensePlan): DenseTensors {
    return { kind, shape, expert: this.all(expert) }
  }

  /** Each spec's tensor under its key. */
  private all<T extends { readonly [K in keyof T]: TensorSpec | null }>(specs: T): Resolved<T> {
    const entries = Object.entries<TensorSpec | null>(specs).map(([key, spec]) => [
      key,
      spec && (spec.kind === 'matrix' ? this.matrix(spec) : this.vector(spec)),
    ])
    return Object.fromEntries(entries) as Resolved<T>
  }

  matrix({ name, rows, cols }: MatrixSpec): Matrix {
    const weight = this.find(`${name}.weight`)
    if (weight.dtype !== 'U32') {
      const type = floatType(`${name}.weight`, weight)
      this.checkShape(`${name}.weight`, weight, [rows, cols])
      return {
        kind: 'plain',
        name,
        rows,
        cols,
        type,
        weight: this.range(`${name}.weight`, rows * cols * FLOAT_BYTES[type]),
      }
    }
    if (weight.block !== undefined) return this.blocks(name, rows, cols, weight)
    const { bits, group } = quantization(`${name}.weight`, weight, cols)
    const scales = this.find(`${name}.scales`)
    const scaleType = floatType(`${name}.scales`, scales)
    if (scaleType === 'F32') throw new TensorError(`${name}.scales`, 'the dtype is F32, want BF16 or F16')
    const biases = this.find(`${name}.biases`)
    if (biases.dtype !== scaleType) {
      throw new TensorError(`${name}.biases`, `the dtype is ${biases.dtype}, want ${scaleType} as the scales have`)
    }
    this.checkShape(`${name}.weight`, weight, [rows, (cols * bits) / 32])
    this.checkShape(`${name}.scales`, scales, [rows, cols / group])
    this.checkShape(`${name}.biases`, biases, [rows, cols / group])
    const sizes = quantizedSizes(rows, cols, bits, group)
    return {
      kind: 'quantized',
      name,
      rows,
      cols,
      bits,
      group,
      scaleType,
      weight: this.range(`${name}.weight`, sizes.weight),
      scales: this.range(`${name}.scales`, sizes.scales),
      biases: this.range(`${name}.biases`, sizes.biases),
    }
  }

  private blocks(name: string, rows: number, cols: number, weight: StoredTensor): Matrix {
    const { block, span } = checkBlock(`${name}.weight`, weight.block, weight.span, cols)
    const format = blockFormat(block)
    const scales = this.find(`${name}.scales`)
    if (scales.dtype !== 'U8') throw new TensorError(`${name}.scales`, `the dtype is ${scales.dtype}, want U8`)
    this.checkShape(`${name}.weight`, weight, [rows, (cols * format.bits) / 32])
    this.checkShape(`${name}.scales`, scales, [rows, blockScaleBytes(format, span, cols)])
    const sizes = blockSizes(rows, cols, format, span)
    return {
      kind: 'blocks',
      name,
      rows,
      cols,
      block,
      span,
      weight: this.range(`${name}.weight`, sizes.weight),
      scales: this.range(`${name}.scales`, sizes.scales),
    }
  }

  vector({ name, length }: VectorSpec): Vector {
    const stored = this.find(name)
    const type = floatType(name, stored)
    const count = stored.shape.reduce((product, dim) => product * dim, 1)
    if (count !== length) throw new TensorError(name, `the shape is [${stored.shape}], want ${length} values`)
    return { name, length, type, data: this.range(name, length * FLOAT_BYTES[type]) }
  }

  private find(name: string): StoredTensor {
    const tensor = this.stored.get(name)
    if (tensor === undefined) throw new TensorError(name, 'is missing')
    return tensor
  }

  private checkShape(name: string, tensor: StoredTensor, want: readonly number[]): void {
    if (tensor.shape.length !== want.length || tensor.shape.some((dim, i) => dim !== want[i])) {
      throw new TensorError(name, `the shape is [${tensor.shape}], want [${want}]`)
    }
  }

  private range(name: string, want: number): ByteRange {
    const { offset, size } = this.find(name)
    if (size !== want) throw new TensorError(name, `has ${size} bytes, want ${want}`)
    if (offset % 4 !== 0) throw new TensorError(name, `starts at ${offset}, want a multiple of 4`)
    if (offset + size > this.file.size) {
      const detail = `reaches from ${offset} to ${offset + size}, past the ${this.file.size} bytes of ${this.file.name}`
      throw new TensorError(name, detail)
    }
    return { offset, size }
  }
}

function floatType(name: string, tensor: StoredTensor): FloatType {
  const { dtype } = tensor
  if (dtype !== 'BF16' && dtype !== 'F16' && dtype !== 'F32') {
    throw new TensorError(name, `the dtype is ${dtype}, want BF16, F16 or F32`)
  }
  return dtype
}

function quantization(name: string, tensor: StoredTensor, cols: number): { bits: QuantBits; group: QuantGroup } {
  const bits = (tensor.bits ?? 4) as QuantBits
  const group = (tensor.groupSize ?? 64) as QuantGroup
  if (!QUANT_BITS.includes(bits)) throw new TensorError(name, `has ${bits} bits, want 2, 4 or 8`)
  if (!QUANT_GROUPS.includes(group)) throw new TensorError(name, `has groups of ${group}, want 32, 64 or 128`)
  if (cols % group !== 0) throw new TensorError(name, `${cols} columns are not a multiple of the group of ${group}`)
  return { bits, group }
}
