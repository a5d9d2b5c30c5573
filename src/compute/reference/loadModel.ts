// The resident weights of a model, layer by layer, read once at open.
import type { FeedForward, LayerTensors, Matrix, Vector } from '../../model/tensors.js'
import type { PackedModel } from '../../storage/packedModel.js'
import type { Progress } from '../backend.js'
import type { ExpertWeights } from './expert.js'
import { readMatrix, readVector, type Weights } from './weights.js'

interface CommonWeights {
  readonly inputNorm: Float32Array // [hidden]
  readonly postAttentionNorm: Float32Array // [hidden]
  readonly router: Weights // [experts, hidden]
  readonly sharedExpertGate: Weights // [1, hidden]
  readonly sharedExpert: ExpertWeights
}

export interface FullAttentionWeights extends CommonWeights {
  readonly kind: 'full_attention'
  readonly qProj: Weights // [heads * 2 * headDim, hidden]: per head query, then gate
  readonly kProj: Weights // [kvHeads * headDim, hidden]
  readonly vProj: Weights // [kvHeads * headDim, hidden]
  readonly oProj: Weights // [hidden, heads * headDim]
  readonly qNorm: Float32Array // [headDim]
  readonly kNorm: Float32Array // [headDim]
}

export interface LinearAttentionWeights extends CommonWeights {
  readonly kind: 'linear_attention'
  readonly inProjQkv: Weights // [convDim, hidden]
  readonly inProjZ: Weights // [valueHeads * valueDim, hidden]
  readonly inProjA: Weights // [valueHeads, hidden]
  readonly inProjB: Weights // [valueHeads, hidden]
  readonly outProj: Weights // [hidden, valueHeads * valueDim]
  readonly conv: Float32Array // [convDim, 4], oldest tap first
  readonly aLog: Float32Array // [valueHeads]
  readonly dtBias: Float32Array // [valueHeads]
  readonly norm: Float32Array // [valueDim]
}

export type LayerWeights = FullAttentionWeights | LinearAttentionWeights

export interface ModelWeights {
  readonly embed: Weights // [vocab, hidden]
  readonly norm: Float32Array // [hidden]
  readonly lmHead: Weights // [vocab, hidden]
  readonly layers: readonly LayerWeights[]
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
  report(total)
  return { embed, norm, lmHead, layers }
}

type ReadMatrix = (entry: Matrix) => Promise<Weights>
type ReadVector = (entry: Vector) => Promise<Float32Array>

async function loadLayer(layer: LayerTensors, matrix: ReadMatrix, vector: ReadVector): Promise<LayerWeights> {
  const common = {
    inputNorm: await vector(layer.inputNorm),
    postAttentionNorm: await vector(layer.postAttentionNorm),
    router: await matrix(layer.router),
    sharedExpertGate: await matrix(layer.sharedExpertGate),
    sharedExpert: await loadFeedForward(layer.sharedExpert, matrix),
  }
  if (layer.kind === 'full_attention') {
    return {
      ...common,
      kind: layer.kind,
      qProj: await matrix(layer.qProj),
      kProj: await matrix(layer.kProj),
      vProj: await matrix(layer.vProj),
      oProj: await matrix(layer.oProj),
      qNorm: await vector(layer.qNorm),
      kNorm: await vector(layer.kNorm),
    }
  }
  return {
    ...common,
    kind: layer.kind,
    inProjQkv: await matrix(layer.inProjQkv),
    inProjZ: await matrix(layer.inProjZ),
    inProjA: await matrix(layer.inProjA),
    inProjB: await matrix(layer.inProjB),
    outProj: await matrix(layer.outProj),
    conv: await vector(layer.conv),
    aLog: await vector(layer.aLog),
    dtBias: await vector(layer.dtBias),
    norm: await vector(layer.norm),
  }
}

async function loadFeedForward(block: FeedForward, matrix: ReadMatrix): Promise<ExpertWeights> {
  return { gate: await matrix(block.gate), up: await matrix(block.up), down: await matrix(block.down) }
}
