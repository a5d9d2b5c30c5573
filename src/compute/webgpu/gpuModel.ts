// What the plan of a GPU's memory has to know of a packed model.
import { gatedMoe } from '../../model/gatedMoe.js'
import type { PackedModel } from '../../storage/packedModel.js'
import { type BackendOptions, PLANNED_TOKENS } from '../backend.js'
import type { GpuModel } from './gpuParts.js'
import { residentWeightsBytes } from './residentWeights.js'
import { sharedMoves, slotLayout } from './slotLayout.js'

export type GpuModelOptions = Pick<BackendOptions, 'expertsPerToken' | 'precision' | 'planned'> &
  Pick<GpuModel, 'maxBufferBytes' | 'chunkTokens' | 'tuning'>

export function gpuModelOf(packed: PackedModel, options: GpuModelOptions): GpuModel {
  const { config, tensors, experts } = packed
  const layout = slotLayout(experts.layout)
  return {
    ...options,
    config,
    planned: options.planned ?? { tokens: PLANNED_TOKENS, sequences: 1, isContext: true },
    weightBytes: residentWeightsBytes(tensors, config, options.maxBufferBytes),
    slotBytes: layout.stride,
    recordBytes: experts.layout.expertSize,
    hasShared: tensors.layers.every(layer => sharedMoves(gatedMoe(layer).sharedExpert, layout) !== null),
  }
}
