// All weights that every token uses, read from model_weights.bin into GPU buffers.
import type { PackedModel } from '../../../files/packed/packedModel.js'
import { storageBytes } from '../../../gpu/device/kernel.js'
import {
  floatBuffer,
  loadMatrices,
  type MatrixAt,
  type MatrixPart,
  matricesBytes,
} from '../../../gpu/memory/matrixWeights.js'
import { WeightStaging } from '../../../gpu/memory/weightStaging.js'
import type { ModelConfig } from '../../../model/config.js'
import { allLayers } from '../../../model/tensorParts.js'
import type { DraftHeadTensors, Matrix, ModelTensors, Vector } from '../../../model/tensors.js'
import { readVector } from '../../../ops/matmul/storedWeights.js'
import type { BackendOptions } from '../../backend.js'
import {
  type LayerWeights,
  layerBytes,
  lengthOf,
  loadLayer,
  type VectorPart,
  type WeightLoader,
} from './layerWeights.js'
import { RouterWeights } from './routerWeights.js'

export interface ResidentWeights {
  readonly embed: readonly MatrixPart[]
  readonly lmHead: readonly MatrixPart[]
  readonly norm: GPUBuffer // [hidden]
  readonly layers: readonly LayerWeights[]
  readonly routers: RouterWeights
  readonly draftHead: DraftHeadWeights | null
}

/** The head for drafts around its layer. */
export interface DraftHeadWeights {
  readonly fc: readonly MatrixPart[]
  /** [3, hidden]: of embeddings, of hidden rows, and the final norm that these have gone through: the model's, or the head's own. */
  readonly inputNorms: GPUBuffer
  readonly chainNorms: GPUBuffer
  readonly layer: LayerWeights
  readonly norm: GPUBuffer // [hidden]
}

export function headOf({ draftHead }: ResidentWeights): DraftHeadWeights {
  if (draftHead === null) throw new Error('the model has no head for drafts')
  return draftHead
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
  const vectors = async (list: readonly VectorPart[]) => {
    const values = new Float32Array(lengthOf(list))
    let at = 0
    for (const part of list) {
      if (typeof part !== 'number') values.set(await readVector(part, source), at)
      at += lengthOf([part])
    }
    const named = list.find(part => typeof part !== 'number')
    return floatBuffer(device, values, named?.name ?? 'zeros')
  }
  const load: WeightLoader = {
    matrices,
    vectors,
    values: vector => readVector(vector, source),
    floats: (values, label) => floatBuffer(device, values, label),
  }
  const single = (matrix: Matrix) => matrices([{ matrix, out: 0 }])

  // All in one buffer, so that one dispatch can ask the routers of several layers.
  const routers = new RouterWeights(
    await matrices(RouterWeights.place(tensors, config), Number.POSITIVE_INFINITY),
    config,
  )
  const layers: LayerWeights[] = []
  for (const layer of tensors.layers) layers.push(await loadLayer(load, tensors, config, routers, layer))
  const embed = await single(tensors.embed)
  const lmHead = isTied(tensors) ? embed : await single(tensors.lmHead)
  const norm = await vectors([tensors.norm])
  const { draftHead: head } = tensors
  const draftHead = head && {
    fc: await single(head.fc),
    inputNorms: await vectors(headNorms(head, tensors.norm)),
    chainNorms: await vectors(headNorms(head, head.norm)),
    layer: await loadLayer(load, tensors, config, routers, head.layer),
    norm: await vectors([head.norm]),
  }
  await staging.close()
  return { embed, lmHead, norm, layers, routers, draftHead }
}

/** What the buffers of `loadResidentWeights` come to. */
export function residentWeightsBytes(tensors: ModelTensors, config: ModelConfig, maxBytes: number): number {
  const matrices = (list: readonly MatrixAt[], maxSegments?: number) => matricesBytes(list, maxBytes, maxSegments)
  const single = (matrix: Matrix) => matrices([{ matrix, out: 0 }])
  let bytes = matrices(RouterWeights.place(tensors, config), Number.POSITIVE_INFINITY)
  bytes += single(tensors.embed) + storageBytes(4 * tensors.norm.length)
  if (!isTied(tensors)) bytes += single(tensors.lmHead)
  for (const layer of allLayers(tensors)) bytes += layerBytes(tensors, config, layer, matrices)
  const { draftHead: head } = tensors
  if (head !== null) bytes += single(head.fc) + 7 * storageBytes(4 * head.norm.length)
  return bytes
}

function headNorms({ embeddingNorm, hiddenNorm }: DraftHeadTensors, final: Vector): Vector[] {
  return [embeddingNorm, hiddenNorm, final]
}

function isTied({ lmHead, embed }: ModelTensors): boolean {
  return lmHead.weight.offset === embed.weight.offset
}
