// The resident weights of a model, layer by layer, read once at open. They have the form of the tensor tables.
import type { PackedModel } from '../../files/packed/packedModel.js'
import type {
  AttentionTensors,
  DeltaTensors,
  DenseTensors,
  LayerTensors,
  Matrix,
  MoeTensors,
  Vector,
} from '../../model/tensors.js'
import { readMatrix, readVector, type Weights } from '../../ops/matmul/storedWeights.js'
import type { ExpertWeights } from '../../ops/moe/reference.js'
import type { Progress } from '../backend.js'

/** The same table with weights in place of matrices, and floats in place of vectors. */
type Loaded<T> = {
  readonly [K in keyof T]: T[K] extends Matrix
    ? Weights
    : T[K] extends Matrix | null
      ? Weights | null
      : T[K] extends Vector
        ? Float32Array
        : T[K] extends Vector | null
          ? Float32Array | null
          : T[K]
}

export type AttentionWeights = Loaded<AttentionTensors>
export type DeltaWeights = Loaded<DeltaTensors>
export type DenseWeights = Omit<DenseTensors, 'expert'> & { readonly expert: ExpertWeights }
export type MoeWeights = Loaded<Omit<MoeTensors, 'shared'>> & {
  readonly shared: { readonly gate: Weights | null; readonly expert: ExpertWeights } | null
}

export interface LayerWeights {
  readonly inputNorm: Float32Array // [hidden]
  readonly postAttentionNorm: Float32Array // [hidden]
  readonly mixer: AttentionWeights | DeltaWeights
  readonly feedForward: MoeWeights | DenseWeights
}

export interface DraftHeadWeights {
  readonly fc: Weights // [hidden, 2 * hidden]
  readonly embeddingNorm: Float32Array // [hidden]
  readonly hiddenNorm: Float32Array // [hidden]
  readonly layer: LayerWeights
  readonly norm: Float32Array // [hidden]
}

export interface ModelWeights {
  readonly embed: Weights // [vocab, hidden]
  readonly norm: Float32Array // [hidden]
  readonly lmHead: Weights // [vocab, hidden]
  readonly layers: readonly LayerWeights[]
  readonly draftHead: DraftHeadWeights | null
}

export interface LoadOptions {
  readonly onProgress?: (progress: Progress) => void
  readonly signal?: AbortSignal
}

export async function loadModel(packed: PackedModel, options: LoadOptions): Promise<ModelWeights> {
  const { tensors, weights: source, config } = packed
  const total = config.numLayers + 1
  const report = (loaded: number) => options.onProgress?.({ phase: 'load weights', loaded, total })
  const matrix = (entry: Matrix) => readMatrix(entry, source, options.signal)
  const vector = (entry: Vector) => readVector(entry, source, options.signal)
  report(0)
  const embed = await matrix(tensors.embed)
  const lmHead = config.tieWordEmbeddings ? embed : await matrix(tensors.lmHead)
  const norm = await vector(tensors.norm)
  const layers: LayerWeights[] = []
  for (const layer of tensors.layers) {
    report(layers.length + 1)
    options.signal?.throwIfAborted()
    layers.push(await loadLayer(layer, matrix, vector))
  }
  const { draftHead: head } = tensors
  const draftHead = head && {
    fc: await matrix(head.fc),
    embeddingNorm: await vector(head.embeddingNorm),
    hiddenNorm: await vector(head.hiddenNorm),
    layer: await loadLayer(head.layer, matrix, vector),
    norm: await vector(head.norm),
  }
  report(total)
  return { embed, norm, lmHead, layers, draftHead }
}

async function loadLayer(
  layer: LayerTensors,
  matrix: (entry: Matrix) => Promise<Weights>,
  vector: (entry: Vector) => Promise<Float32Array>,
): Promise<LayerWeights> {
  const load = async <T extends object>(table: T): Promise<Loaded<T>> => {
    const loaded: [string, unknown][] = []
    for (const [key, part] of Object.entries(table)) {
      const value = isMatrix(part) ? await matrix(part) : isVector(part) ? await vector(part) : part
      loaded.push([key, value])
    }
    return Object.fromEntries(loaded) as Loaded<T>
  }
  const { mixer, feedForward } = layer
  const norms = await load({ inputNorm: layer.inputNorm, postAttentionNorm: layer.postAttentionNorm })
  const mixing = mixer.kind === 'full_attention' ? await load(mixer) : await load(mixer)
  if (feedForward.kind === 'dense') {
    return { ...norms, mixer: mixing, feedForward: { ...feedForward, expert: await load(feedForward.expert) } }
  }
  const { shared, ...moe } = feedForward
  const own = await load(moe)
  const sharedWeights = shared && { ...(await load({ gate: shared.gate })), expert: await load(shared.expert) }
  return { ...norms, mixer: mixing, feedForward: { ...own, shared: sharedWeights } }
}

function isMatrix(part: unknown): part is Matrix {
  return typeof part === 'object' && part !== null && 'rows' in part
}

function isVector(part: unknown): part is Vector {
  return typeof part === 'object' && part !== null && 'data' in part
}
