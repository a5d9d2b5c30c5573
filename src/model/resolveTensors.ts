// From a manifest's flat list of stored tensors to one typed table per layer, once, at open. Every tensor that the
// model's shapes ask for must be there, with its shape, inside its file. Reads nothing.
import { TensorError } from '../base/errors.js'
import type { ModelConfig } from './config.js'
import { FLOAT_BYTES } from './floats.js'
import { floatType, storedMatrix } from './storedMatrix.js'
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
  LayerTensors,
  Matrix,
  ModelTensors,
  MoeTensors,
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
    return storedMatrix(name, rows, cols, {
      find: part => {
        const { bits = 4, groupSize: group = 64, ...tensor } = this.find(`${name}.${part}`)
        return { ...tensor, bits, group }
      },
      range: (part, size) => this.range(`${name}.${part}`, size),
    })
  }

  vector({ name, length }: VectorSpec): Vector {
    const stored = this.find(name)
    const type = floatType(name, stored.dtype)
    const count = stored.shape.reduce((product, dim) => product * dim, 1)
    if (count !== length) throw new TensorError(name, `the shape is [${stored.shape}], want ${length} values`)
    return { name, length, type, data: this.range(name, length * FLOAT_BYTES[type]) }
  }

  private find(name: string): StoredTensor {
    const tensor = this.stored.get(name)
    if (tensor === undefined) throw new TensorError(name, 'is missing')
    return tensor
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
