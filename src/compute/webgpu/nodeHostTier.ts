// The host tier in Node: slots in memory for experts that the GPU has none for, threads that compute them there, and
// threads that read them.
import { ExpertReaderPool } from '../../experts/expertReaderPool.js'
import type { ExpertTiers } from '../../experts/expertTiers.js'
import type { MemoryFacts } from '../../experts/memoryFacts.js'
import type { PackedModel } from '../../storage/packedModel.js'
import type { BackendOptions } from '../backend.js'
import type { HostSide } from '../gpuPlan.js'
import type { TierWay } from '../tierRates.js'
import { hostSide, hostThreads } from '../wasm/hostSide.js'
import { HostWorkers } from '../wasm/hostWorkers.js'
import { nodeHost } from '../wasm/nodeHost.js'
import { expertForms } from '../wasm/placedModel.js'
import { STAGING_BUFFERS } from './expertUploads.js'
import { HostTier } from './hostTier.js'
import { loadVectors } from './matrixWeights.js'
import { gpuReaders } from './nodeExpertReader.js'

/** What this machine has of memory now. */
export function memoryFacts(): MemoryFacts {
  return nodeHost().memory()
}

/** What the plan has to know of this machine as a place beside a GPU. */
export function nodeHostSide(
  packed: PackedModel,
  options: BackendOptions,
  maxRows: number,
  memory: MemoryFacts,
): HostSide {
  const { config, experts } = packed
  const { expertSize } = experts.layout
  const { threads: cores, threadBytes, readers } = nodeHost()
  const count = config.numLayers * config.numExperts
  const forms = expertForms(experts.layout, options.precision)
  return hostSide({
    ...{ config, forms, expertSize, maxRows, memory, cores, threadBytes },
    ...{ expertsPerToken: options.expertsPerToken, expertMemory: options.expertMemory, threads: options.threads },
    readers: readers(count * expertSize) + gpuReaders(expertSize, count),
    stagingBytes: 2 * STAGING_BUFFERS * expertSize, // as they come, and mapped
  })
}

/** What depends on the rest of the backend. */
interface HostTierParts {
  /** How fast the processors are beside the GPU, and what to do about it. */
  measure(workers: HostWorkers): Promise<TierWay>
  tiersOf(memorySlots: number, way: TierWay): ExpertTiers
}

/** null: missing experts are sooner brought to the GPU than computed here. */
export async function nodeHostTier(
  packed: PackedModel,
  options: BackendOptions,
  maxRows: number,
  slots: number,
  { measure, tiersOf }: HostTierParts,
): Promise<HostTier | null> {
  const { layout, files } = packed.experts
  const { expertsPerToken, precision } = options
  const host = nodeHost()
  const norms = await Promise.all(
    packed.tensors.layers.map(layer => loadVectors(packed.weights, [layer.postAttentionNorm])),
  )
  const threads = options.threads ?? hostThreads(host.threads)
  const workers = await HostWorkers.open(packed, { precision, expertsPerToken, threads, slots, maxRows, norms }, host)
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
  const names = files.map(file => file.name)
  const pool = new ExpertReaderPool({
    files: names,
    expertSize: layout.expertSize,
    banks: workers.memories,
    slotBytes: slots * workers.slotBytes,
    yieldsToDemands: true,
    reads: options.expertReads,
    faults: options.readFaults,
    checksums: packed.experts.checksums,
    onNotice: options.onNotice,
  })
  return new HostTier(tiersOf(slots, way), layout.expertSize, names, workers, pool, way.leastToBring)
}
