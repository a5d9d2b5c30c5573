// All weights that every token uses, read from model_weights.bin into GPU buffers.
import type { ModelConfig } from '../../model/config.js'
import { gatedMoe } from '../../model/gatedMoe.js'
import type { DeltaTensors, LayerTensors, Matrix, ModelTensors, Vector } from '../../model/tensors.js'
import type { PackedModel } from '../../storage/packedModel.js'
import type { BackendOptions } from '../backend.js'
import { attentionColumns } from './attentionShape.js'
import { storageBytes } from './kernel.js'
import { linearColumns } from './linearShape.js'
import {
  floatBuffer,
  loadMatrices,
  loadVectors,
  type MatrixAt,
  type MatrixPart,
  matricesBytes,
} from './matrixWeights.js'
import { MOST_AHEAD, Routers } from './routers.js'
import { WeightStaging } from './weightStaging.js'

interface CommonLayerWeights {
  readonly inputNorm: GPUBuffer // [hidden]
  readonly postNorm: GPUBuffer // [1 + layers ahead, hidden]: that of this layer, then those of the next
  readonly inProj: readonly MatrixPart[]
  readonly outProj: readonly MatrixPart[]
  readonly router: readonly MatrixPart[] // router rows, then the shared expert's gate
  readonly sharedGateUp: readonly MatrixPart[]
  readonly sharedDown: readonly MatrixPart[]
}

export interface LinearLayerWeights extends CommonLayerWeights {
  readonly kind: 'linear_attention'
  readonly taps: GPUBuffer // [channels, 4]
  readonly gates: GPUBuffer // [valueHeads, 2]: -exp(A_log), dt_bias
  readonly norm: GPUBuffer // [valueDim]
  readonly stepConstants: GPUBuffer // for linearStep: taps, gates and norm as quads
}

export interface FullLayerWeights extends CommonLayerWeights {
  readonly kind: 'full_attention'
  readonly qkNorms: GPUBuffer // [2, headDim]
}

export type LayerWeights = LinearLayerWeights | FullLayerWeights

export interface ResidentWeights {
  readonly embed: readonly MatrixPart[]
  readonly lmHead: readonly MatrixPart[]
  readonly norm: GPUBuffer // [hidden]
  readonly layers: readonly LayerWeights[]
  readonly routers: Routers
}

export async function loadResidentWeights(
  device: GPUDevice,
  packed: PackedModel,
  maxBytes: number,
  stagingBytes: number, // that may be used meanwhile, more or less
  options: Pick<BackendOptions, 'onProgress' | 'signal'>,
): Promise<ResidentWeights> {
  const { tensors, weights: source, config } = packed
  const staging = await WeightStaging.create(device, stagingBytes)
  let loaded = 0
  const matrices = async (list: readonly MatrixAt[], maxSegments?: number) => {
    const parts = await loadMatrices(device, staging, source, list, maxBytes, options.signal, maxSegments)
    loaded += parts.reduce((sum, part) => sum + part.buffer.size, 0)
    options.onProgress?.({ phase: 'weights', loaded: Math.min(loaded, source.size), total: source.size })
    options.signal?.throwIfAborted()
    return parts
  }
  const vectors = async (...list: Parameters<typeof loadVectors>[1][number][]) =>
    floatBuffer(device, await loadVectors(source, list), list[0].name)
  const single = (matrix: Matrix) => matrices([{ matrix, out: 0 }])

  // All in one buffer, so that one dispatch can ask the routers of several layers.
  const gates = tensors.layers.flatMap((layer, i) => Routers.place(layer, i, config))
  const routers = new Routers(await matrices(gates, Number.POSITIVE_INFINITY), config)
  const layers: LayerWeights[] = []
  for (const [i, layer] of tensors.layers.entries()) {
    const norms = postNorms(tensors, i)
    const common = {
      inputNorm: await vectors(layer.inputNorm),
      postNorm: await vectors(...norms),
      inProj: await matrices(inProjections(layer, config)),
      outProj: await single(outProjection(layer)),
      router: routers.of(i),
      sharedGateUp: await matrices(sharedGateUp(layer, config)),
      sharedDown: await single(gatedMoe(layer).sharedExpert.down),
    }
    const { mixer } = layer
    if (mixer.kind === 'full_attention') {
      layers.push({ ...common, kind: mixer.kind, qkNorms: await vectors(mixer.qNorm!, mixer.kNorm!) })
    } else {
      layers.push({
        ...common,
        kind: mixer.kind,
        taps: await vectors(mixer.conv),
        norm: await vectors(mixer.norm),
        ...(await loadGates(device, packed, mixer)),
      })
    }
  }
  const embed = await single(tensors.embed)
  const lmHead = isTied(tensors) ? embed : await single(tensors.lmHead)
  const norm = await vectors(tensors.norm)
  await staging.close()
  return { embed, lmHead, norm, layers, routers }
}

/** What the buffers of `loadResidentWeights` come to. */
export function residentWeightsBytes(tensors: ModelTensors, config: ModelConfig, maxBytes: number): number {
  const matrices = (list: readonly MatrixAt[], maxSegments?: number) => matricesBytes(list, maxBytes, maxSegments)
  const single = (matrix: Matrix) => matrices([{ matrix, out: 0 }])
  const vectors = (...list: readonly Vector[]) => storageBytes(4 * list.reduce((sum, { length }) => sum + length, 0))
  const gates = tensors.layers.flatMap((layer, i) => Routers.place(layer, i, config))
  let bytes = matrices(gates, Number.POSITIVE_INFINITY) + single(tensors.embed) + vectors(tensors.norm)
  if (!isTied(tensors)) bytes += single(tensors.lmHead)
  for (const [i, layer] of tensors.layers.entries()) {
    bytes += vectors(layer.inputNorm) + vectors(...postNorms(tensors, i)) + matrices(inProjections(layer, config))
    bytes +=
      single(outProjection(layer)) + matrices(sharedGateUp(layer, config)) + single(gatedMoe(layer).sharedExpert.down)
    const { mixer } = layer
    if (mixer.kind === 'full_attention') bytes += vectors(mixer.qNorm!, mixer.kNorm!)
    else {
      const { aLog, conv, norm } = mixer
      const constants = conv.length + 4 * (aLog.length + norm.length)
      bytes += vectors(conv) + vectors(norm) + storageBytes(8 * aLog.length) + storageBytes(4 * constants)
    }
  }
  return bytes
}

function isTied({ lmHead, embed }: ModelTensors): boolean {
  return lmHead.weight.offset === embed.weight.offset
}

function postNorms({ layers }: ModelTensors, layer: number): Vector[] {
  return layers.slice(layer, layer + 1 + MOST_AHEAD).map(each => each.postAttentionNorm)
}

function outProjection({ mixer }: LayerTensors): Matrix {
  return mixer.kind === 'full_attention' ? mixer.oProj : mixer.outProj
}

function sharedGateUp(layer: LayerTensors, config: ModelConfig): MatrixAt[] {
  const { sharedExpert } = gatedMoe(layer)
  return [
    { matrix: sharedExpert.gate, out: 0 },
    { matrix: sharedExpert.up, out: config.sharedExpertIntermediateSize },
  ]
}

function inProjections({ mixer }: LayerTensors, config: ModelConfig): MatrixAt[] {
  if (mixer.kind === 'full_attention') {
    const columns = attentionColumns(config)
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

async function loadGates(
  device: GPUDevice,
  packed: PackedModel,
  mixer: DeltaTensors,
): Promise<{ gates: GPUBuffer; stepConstants: GPUBuffer }> {
  const { weights } = packed
  const [aLog, dtBias, taps, norm] = await Promise.all(
    [mixer.aLog, mixer.dtBias, mixer.conv, mixer.norm].map(vector => loadVectors(weights, [vector])),
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
  return { gates: floatBuffer(device, pairs, 'gates'), stepConstants: floatBuffer(device, quads, 'linear constants') }
}
