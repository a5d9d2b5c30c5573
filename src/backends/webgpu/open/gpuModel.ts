// What the plan of a GPU's memory has to know of a packed model.
import { PLANNED_TOKENS } from '../../../base/defaults.js'
import type { PackedModel } from '../../../files/packed/packedModel.js'
import { sharedMoves, slotLayouts } from '../../../gpu/memory/slotLayout.js'
import { allLayers } from '../../../model/tensorParts.js'
import type { ExpertLayout, LayerTensors } from '../../../model/tensors.js'
import type { BackendOptions } from '../../backend.js'
import { residentWeightsBytes } from '../memory/residentWeights.js'
import type { GpuModel } from './gpuPlan.js'

export type GpuModelOptions = Pick<BackendOptions, 'expertsPerToken' | 'precision' | 'planned'> &
  Pick<GpuModel, 'maxBufferBytes' | 'chunkTokens' | 'tensors' | 'tuning'>

export function gpuModelOf(packed: PackedModel, options: GpuModelOptions): GpuModel {
  const { config, tensors, experts } = packed
  const { expertLayers } = config
  const layers = allLayers(tensors)
  return {
    ...options,
    config,
    planned: options.planned ?? { tokens: PLANNED_TOKENS, sequences: 1, isContext: true },
    weightBytes: residentWeightsBytes(tensors, config, options.maxBufferBytes),
    ...(expertLayers.length === 0
      ? NO_SLOTS
      : slotSizes(
          experts.layouts,
          expertLayers.map(layer => layers[layer]),
        )),
  }
}

type SlotSizes = Pick<GpuModel, 'slotBytes' | 'recordBytes' | 'hasShared'>

const NO_SLOTS: SlotSizes = { slotBytes: 0, recordBytes: 0, hasShared: false }

function slotSizes(records: readonly ExpertLayout[], layers: readonly LayerTensors[]): SlotSizes {
  const layouts = slotLayouts(records)
  return {
    slotBytes: layouts[0].stride,
    recordBytes: records[0].expertSize,
    hasShared: layers.every((layer, place) => sharedMoves(layer, layouts[place]) !== null),
  }
}
