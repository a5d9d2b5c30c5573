// The host tier in Node: slots in memory for experts that the GPU has none for, threads that compute them there, and
// threads that read them.
import { ExpertReaderPool } from '../../experts/expertReaderPool.js'
import type { ExpertTiers } from '../../experts/expertTiers.js'
import type { PackedModel } from '../../storage/packedModel.js'
import type { BackendOptions } from '../backend.js'
import type { TierWay } from '../tierRates.js'
import { HostWorkers } from '../wasm/hostWorkers.js'
import { nodeHost } from '../wasm/nodeHost.js'
import { HostTier } from './hostTier.js'
import { loadVectors } from './matrixWeights.js'

/** More threads lose more at barriers than they win: a layer's missing experts are few. */
const MOST_THREADS = 8

/** What depends on the rest of the backend. */
export interface HostTierParts {
  /** How fast the processors are beside the GPU, and what to do about it. */
  measure(workers: HostWorkers): Promise<TierWay>
  tiersOf(memorySlots: number, way: TierWay): ExpertTiers
}

/** null: missing experts are sooner brought to the GPU than computed here. */
export async function nodeHostTier(
  packed: PackedModel,
  options: BackendOptions,
  maxRows: number,
  wanted: number,
  { measure, tiersOf }: HostTierParts,
): Promise<HostTier | null> {
  const { layout, files } = packed.experts
  const { expertsPerToken, precision } = options
  const host = nodeHost()
  const norms = await Promise.all(
    packed.tensors.layers.map(layer => loadVectors(packed.weights, [layer.postAttentionNorm])),
  )
  const room = options.expertMemory ?? host.memory().bytes * 0.6
  const slots = Math.max(2 * expertsPerToken, Math.min(wanted, Math.floor(room / layout.expertSize)))
  const threads = options.threads ?? Math.min(MOST_THREADS, host.threads)
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
  options.onNotice?.(`${slots} experts in memory`)
  return new HostTier(tiersOf(slots, way), layout.expertSize, names, workers, pool, way.leastToBring)
}
