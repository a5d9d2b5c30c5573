// The widest rows that the layers of a model pass through a workspace: layers of all kinds use the same buffers in turn.
import type { ModelConfig } from '../../../model/config.js'
import { linearColumns } from '../../../model/linearShape.js'
import { attentionColumns } from '../../../ops/attention/attentionShape.gpu.js'

export interface LayerWidths {
  readonly mixerIn: number // columns of the in-projections
  readonly mixed: number // input of the out-projection
  readonly dense: number // of feed-forward blocks that every token goes through: shared experts, dense layers
}

export function layerWidths(config: ModelConfig): LayerWidths {
  const layers = config.draftHead === null ? config.layers : [...config.layers, config.draftHead]
  const mixers = layers.map(({ mixer }) =>
    mixer.kind === 'full_attention'
      ? { mixerIn: attentionColumns(config, mixer).stride, mixed: config.numHeads * config.headDim }
      : { mixerIn: linearColumns(config).stride, mixed: config.linearValueHeads * config.linearValueDim },
  )
  const dense = layers.map(({ feedForward }) =>
    feedForward.kind === 'dense' ? feedForward.width : config.sharedExpertIntermediateSize,
  )
  return {
    mixerIn: Math.max(...mixers.map(({ mixerIn }) => mixerIn)),
    mixed: Math.max(...mixers.map(({ mixed }) => mixed)),
    dense: Math.max(...dense),
  }
}
