// How large a model will be when it is packed, by the plan that the conversion itself makes. Reads headers, and no weights.
import { type ModelConfig, parseConfig } from '../../model/config.js'
import type { ModelBytes } from '../../model/estimate.js'
import { readJson } from '../packed/openPacked.js'
import { CONFIG_NAME, GENERATION_CONFIG_NAME } from '../packed/packedNames.js'
import type { Folder } from '../source.js'
import { type PackingOptions, plannedBytes, planPacking } from './packingPlan.js'
import { openShardedModel } from './shardedModel.js'
import { SourceModel } from './sourceModel.js'

export interface PackedSize {
  readonly config: ModelConfig
  readonly bytes: ModelBytes
  readonly packedBytes: number // of all files of weights
}

export async function packedSize(source: Folder, options: PackingOptions = {}): Promise<PackedSize> {
  const read = parseConfig(await readJson(source, CONFIG_NAME), await readJson(source, GENERATION_CONFIG_NAME))
  const sharded = await openShardedModel(source)
  try {
    const model = new SourceModel(sharded, read)
    const { config } = model
    const plan = planPacking(model, options)
    const expert = plan.expertSets[0]?.expertSize ?? 0
    const parts = [...plan.stored].filter(([name]) => name.startsWith('model.embed_tokens.'))
    const embedding = parts.reduce((sum, [, { size }]) => sum + size, 0)
    const bytes = {
      expert,
      allExperts: config.expertLayers.length * config.numExperts * expert,
      resident: plan.residentBytes,
      embedding: config.tieWordEmbeddings ? 0 : embedding,
    }
    return { config, bytes, packedBytes: plannedBytes(config, plan) }
  } finally {
    await sharded.close()
  }
}
