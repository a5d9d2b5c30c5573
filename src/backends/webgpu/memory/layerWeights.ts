// The weights of one layer in GPU buffers, by the kinds of its mixer and its feed-forward block: which matrices share a buffer
// and a dispatch, which vectors lie back to back.
import { storageBytes } from '../../../gpu/device/kernel.js'
import type { MatrixAt, MatrixPart } from '../../../gpu/memory/matrixWeights.js'
import type { ModelConfig } from '../../../model/config.js'
import type { AttentionShape, DenseShape, MoeShape } from '../../../model/layers.js'
import { linearColumns } from '../../../model/linearShape.js'
import type {
  AttentionTensors,
  DeltaTensors,
  FeedForward,
  LayerTensors,
  Matrix,
  ModelTensors,
  MoeTensors,
  Vector,
} from '../../../model/tensors.js'
import { attentionColumns } from '../../../ops/attention/attentionShape.gpu.js'
import { MOST_AHEAD, type RouterWeights } from './routerWeights.js'

export interface AttentionWeights {
  readonly kind: 'full_attention'
  readonly shape: AttentionShape
  readonly inProj: readonly MatrixPart[]
  readonly inBias: GPUBuffer | null // [stride of attentionColumns]
  readonly outProj: readonly MatrixPart[]
  readonly outBias: GPUBuffer | null // [hidden]
  readonly qkNorms: GPUBuffer | null // [2, headDim]
  readonly sinks: GPUBuffer | null // [heads]
}

export interface DeltaWeights {
  readonly kind: 'linear_attention'
  readonly inProj: readonly MatrixPart[]
  readonly outProj: readonly MatrixPart[]
  readonly taps: GPUBuffer // [channels, 4]
  readonly gates: GPUBuffer // [valueHeads, 2]: -exp(A_log), dt_bias
  readonly norm: GPUBuffer // [valueDim]
  readonly stepConstants: GPUBuffer // for linearStep: taps, gates and norm as quads
}

/** A feed-forward block that every token goes through. */
export interface BlockWeights {
  readonly gateUp: readonly MatrixPart[]
  readonly down: readonly MatrixPart[]
  readonly width: number
}

export interface MoeWeights {
  readonly kind: 'moe'
  readonly shape: MoeShape
  readonly place: number // among the layers with experts
  readonly router: readonly MatrixPart[] // router rows, then the shared expert's gate where it has one
  readonly routerBias: GPUBuffer | null // by column of the logits, those of the layers ahead too
  readonly selectionBias: GPUBuffer | null // [1 + layers ahead, experts]
  readonly shared: BlockWeights | null
}

export interface DenseWeights {
  readonly kind: 'dense'
  readonly shape: DenseShape
  readonly block: BlockWeights
}

export interface LayerWeights {
  readonly inputNorm: GPUBuffer // [hidden]
  /** [1 + layers ahead, hidden]: that of this layer, then those of the next layers with experts, whose routers are asked. */
  readonly postNorm: GPUBuffer
  readonly mixer: AttentionWeights | DeltaWeights
  readonly feedForward: MoeWeights | DenseWeights
}

/** A vector, or so many zeros. */
export type VectorPart = Vector | number

/** Puts tensors into new buffers. */
export interface WeightLoader {
  matrices(list: readonly MatrixAt[]): Promise<MatrixPart[]>
  vectors(list: readonly VectorPart[]): Promise<GPUBuffer>
  values(vector: Vector): Promise<Float32Array>
  floats(values: Float32Array, label: string): GPUBuffer
}

export async function loadLayer(
  load: WeightLoader,
  tensors: ModelTensors,
  config: ModelConfig,
  routers: RouterWeights,
  layer: LayerTensors,
): Promise<LayerWeights> {
  const { inputNorm, mixer } = layer
  return {
    inputNorm: await load.vectors([inputNorm]),
    postNorm: await load.vectors(postNorms(tensors, config, layer)),
    mixer:
      mixer.kind === 'full_attention' ? await loadAttention(load, mixer, config) : await loadDelta(load, mixer, config),
    feedForward: await loadFeedForward(load, tensors, config, routers, layer),
  }
}

async function loadAttention(
  load: WeightLoader,
  mixer: AttentionTensors,
  config: ModelConfig,
): Promise<AttentionWeights> {
  const optional = (list: readonly Vector[]) => (list.length === 0 ? null : load.vectors(list))
  return {
    kind: mixer.kind,
    shape: mixer.shape,
    inProj: await load.matrices(inProjections(mixer, config)),
    inBias: await optional(present(mixer.qBias, mixer.kBias, mixer.vBias)),
    outProj: await load.matrices([{ matrix: mixer.oProj, out: 0 }]),
    outBias: await optional(present(mixer.oBias)),
    qkNorms: await optional(present(mixer.qNorm, mixer.kNorm)),
    sinks: await optional(present(mixer.sinks)),
  }
}

async function loadDelta(load: WeightLoader, mixer: DeltaTensors, config: ModelConfig): Promise<DeltaWeights> {
  const inProj = await load.matrices(inProjections(mixer, config))
  const outProj = await load.matrices([{ matrix: mixer.outProj, out: 0 }])
  const [aLog, dtBias, taps, norm] = await Promise.all(
    [mixer.aLog, mixer.dtBias, mixer.conv, mixer.norm].map(vector => load.values(vector)),
  )
  const heads = aLog.length
  const pairs = new Float32Array(2 * heads)
  const quads = new Float32Array(taps.length + 4 * (heads + norm.length))
  quads.set(taps)
  for (let head = 0; head < heads; head++) {
    pairs.set([-Math.exp(aLog[head]), dtBias[head]], 2 * head)
    quads.set(pairs.subarray(2 * head, 2 * head + 2), taps.length + 4 * head)
  }
  for (const [i, value] of norm.entries()) quads[taps.length + 4 * (heads + i)] = value
  return {
    kind: mixer.kind,
    inProj,
    outProj,
    taps: load.floats(taps, mixer.conv.name),
    norm: load.floats(norm, mixer.norm.name),
    gates: load.floats(pairs, 'gates'),
    stepConstants: load.floats(quads, 'linear constants'),
  }
}

async function loadFeedForward(
  load: WeightLoader,
  tensors: ModelTensors,
  config: ModelConfig,
  routers: RouterWeights,
  layer: LayerTensors,
): Promise<MoeWeights | DenseWeights> {
  const { feedForward } = layer
  const block = async (expert: FeedForward): Promise<BlockWeights> => ({
    gateUp: await load.matrices(gateUpOf(expert)),
    down: await load.matrices([{ matrix: expert.down, out: 0 }]),
    width: expert.gate.rows,
  })
  if (feedForward.kind === 'dense') {
    return { kind: 'dense', shape: feedForward.shape, block: await block(feedForward.expert) }
  }
  const place = config.expertLayers.indexOf(layer.layer)
  const biases = routerBiases(tensors, config, layer)
  const selection = selectionBiases(tensors, config, layer)
  return {
    kind: 'moe',
    shape: feedForward.shape,
    place,
    router: routers.of(place),
    routerBias: biases.length === 0 ? null : await load.vectors(biases),
    selectionBias: selection.length === 0 ? null : await load.vectors(selection),
    shared: feedForward.shared && (await block(feedForward.shared.expert)),
  }
}

/** What the buffers of `loadLayer` come to, routers aside. */
export function layerBytes(
  tensors: ModelTensors,
  config: ModelConfig,
  layer: LayerTensors,
  matrices: (list: readonly MatrixAt[]) => number,
): number {
  const vectors = (list: readonly VectorPart[]) => (list.length === 0 ? 0 : storageBytes(4 * lengthOf(list)))
  const single = (matrix: Matrix) => matrices([{ matrix, out: 0 }])
  const { mixer, feedForward } = layer
  let bytes = vectors([layer.inputNorm]) + vectors(postNorms(tensors, config, layer))
  bytes += matrices(inProjections(mixer, config))
  if (mixer.kind === 'full_attention') {
    bytes += single(mixer.oProj) + vectors(present(mixer.qBias, mixer.kBias, mixer.vBias))
    for (const list of [present(mixer.oBias), present(mixer.qNorm, mixer.kNorm), present(mixer.sinks)]) {
      bytes += vectors(list)
    }
  } else {
    const { aLog, conv, norm } = mixer
    const constants = conv.length + 4 * (aLog.length + norm.length)
    bytes += single(mixer.outProj) + vectors([conv]) + vectors([norm])
    bytes += storageBytes(8 * aLog.length) + storageBytes(4 * constants)
  }
  bytes += vectors(routerBiases(tensors, config, layer)) + vectors(selectionBiases(tensors, config, layer))
  const block = feedForward.kind === 'dense' ? feedForward.expert : feedForward.shared?.expert
  return block === undefined ? bytes : bytes + matrices(gateUpOf(block)) + single(block.down)
}

export function lengthOf(list: readonly VectorPart[]): number {
  return list.reduce<number>((sum, part) => sum + (typeof part === 'number' ? part : part.length), 0)
}

function present(...list: readonly (Vector | null)[]): Vector[] {
  return list.filter(vector => vector !== null)
}

/** A layer with experts, and those after it whose routers may be asked with its own. */
function withNext({ layers }: ModelTensors, { moeLayers }: ModelConfig, own: LayerTensors): LayerTensors[] {
  const place = moeLayers.indexOf(own.layer)
  return place < 0 ? [own] : moeLayers.slice(place, place + 1 + MOST_AHEAD).map(each => layers[each])
}

function postNorms(tensors: ModelTensors, config: ModelConfig, layer: LayerTensors): Vector[] {
  return withNext(tensors, config, layer).map(each => each.postAttentionNorm)
}

/** As the logits lie: this router's experts, the shared expert's gate, then the experts of the next routers. */
function routerBiases(tensors: ModelTensors, config: ModelConfig, layer: LayerTensors): VectorPart[] {
  const [own, ...next] = biasesOf(tensors, config, layer, 'routerBias')
  return own === undefined ? [] : [own, 1, ...next]
}

function selectionBiases(tensors: ModelTensors, config: ModelConfig, layer: LayerTensors): VectorPart[] {
  return biasesOf(tensors, config, layer, 'selectionBias')
}

/** Of this layer and the next; none where this layer has none. */
function biasesOf(
  tensors: ModelTensors,
  config: ModelConfig,
  layer: LayerTensors,
  name: keyof Pick<MoeTensors, 'routerBias' | 'selectionBias'>,
): VectorPart[] {
  const biasOf = ({ feedForward }: LayerTensors) => (feedForward.kind === 'moe' ? feedForward[name] : null)
  if (biasOf(layer) === null) return []
  return withNext(tensors, config, layer).map(each => biasOf(each) ?? config.numExperts)
}

function gateUpOf({ gate, up }: FeedForward): MatrixAt[] {
  return [
    { matrix: gate, out: 0 },
    { matrix: up, out: gate.rows },
  ]
}

function inProjections(mixer: AttentionTensors | DeltaTensors, config: ModelConfig): MatrixAt[] {
  if (mixer.kind === 'full_attention') {
    const columns = attentionColumns(config, mixer.shape)
    return [
      { matrix: mixer.qProj, out: 0 },
      { matrix: mixer.kProj, out: columns.k },
      { matrix: mixer.vProj, out: columns.v },
    ]
  }
  const columns = linearColumns(config)
  return [
    { matrix: mixer.inProjQkv, out: 0 },
    { matrix: mixer.inProjZ, out: columns.z },
    { matrix: mixer.inProjB, out: columns.b },
    { matrix: mixer.inProjA, out: columns.a },
  ]
}
