// Opens the host tier: slots in memory for experts that the GPU has none for, and threads that compute them there. Where it
// runs, in Node or in a tab, is told to it: threads, memory, and who reads experts into that memory.
import type { MemoryFacts } from '../../../base/memoryFacts.js'
import type { ExpertTiers } from '../../../experts/expertTiers.js'
import type { TierWay } from '../../../experts/tierSpeed.js'
import type { PackedModel } from '../../../files/packed/packedModel.js'
import { allLayers } from '../../../model/tensorParts.js'
import { readVector } from '../../../ops/matmul/storedWeights.js'
import type { BackendOptions } from '../../backend.js'
import type { HostSide } from '../../plan.js'
import { threadCount, threadNotice } from '../../wasm/clampThreads.js'
import { hostSide, hostThreads } from '../../wasm/cpuTierPlan.js'
import { expertForms } from '../../wasm/memory/placedModel.js'
import type { WasmHost } from '../../wasm/platform.js'
import { HostWorkers } from '../../wasm/workers/expertWorkers.js'
import { HostTier, type SlotReader } from '../experts/cpuTier.js'
import { STAGING_BUFFERS } from '../experts/loader.js'

export interface TierPlace {
  readonly host: WasmHost // of shared memory
  /** Threads that read experts, for these slots and for those of the GPU. */
  readonly readers: number
  openReader(workers: HostWorkers): SlotReader
}

/** What the plan has to know of a place beside a GPU. */
export function hostSideOf(
  packed: PackedModel,
  options: BackendOptions,
  maxRows: number,
  memory: MemoryFacts,
  { host, readers }: TierPlace,
): HostSide {
  const { config, experts } = packed
  const { expertSize } = experts.layout
  const { threads: cores, threadBytes } = host
  const threads = threadCount(options.threads, host.processors)
  const forms = expertForms(experts.layouts, options.precision)
  return hostSide({
    ...{ config, forms, expertSize, maxRows, memory, cores, threadBytes, readers },
    ...{ expertsPerToken: options.expertsPerToken, expertMemory: options.expertMemory, threads },
    stagingBytes: 2 * STAGING_BUFFERS * expertSize, // as they come, and mapped
  })
}

/** What depends on the rest of the backend. */
interface HostTierParts {
  /** The GPU is an emulated one. */
  readonly sharesProcessors: boolean
  /** How fast the processors are beside the GPU, and what to do about it. */
  measure(workers: HostWorkers): Promise<TierWay>
  tiersOf(memorySlots: number, way: TierWay): ExpertTiers
}

/** null: missing experts are sooner brought to the GPU than computed here. */
export async function openHostTier(
  packed: PackedModel,
  options: BackendOptions,
  maxRows: number,
  slots: number,
  { sharesProcessors, measure, tiersOf }: HostTierParts,
  place: TierPlace,
): Promise<HostTier | null> {
  const { layout, files } = packed.experts
  const { expertsPerToken, precision } = options
  const { host } = place
  const layers = allLayers(packed.tensors)
  const norms = await Promise.all(
    packed.config.expertLayers.map(layer => readVector(layers[layer].postAttentionNorm, packed.weights)),
  )
  const notice = threadNotice(options.threads, host.processors)
  if (notice !== null) options.onNotice?.(notice)
  const threads = threadCount(options.threads, host.processors) ?? hostThreads(host.threads)
  const given = { precision, expertsPerToken, threads, slots, maxRows, norms, sharesProcessors }
  const workers = await HostWorkers.open(packed, given, host)
  const way = await measure(workers).catch(async error => {
    await workers.close()
    throw error
  })
  if (way.line !== '') options.onNotice?.(way.line)
  if (way.way === 'upload') {
    await workers.close()
    return null
  }
  workers.use(way.threads)
  const names = { fileNames: files.map(file => file.name), layerNumbers: packed.config.expertLayers }
  return new HostTier(tiersOf(slots, way), layout.expertSize, names, workers, place.openReader(workers), way.prompts)
}
