// The host tier in Node: slots in memory for experts that the GPU has none for, threads that compute them there, and
// threads that read them.
import { ExpertReaderPool } from '../../experts/expertReaderPool.js'
import type { ExpertTiers } from '../../experts/expertTiers.js'
import type { PackedModel } from '../../storage/packedModel.js'
import type { BackendOptions } from '../backend.js'
import { HostWorkers } from '../wasm/hostWorkers.js'
import { nodeHost } from '../wasm/nodeHost.js'
import { HostTier } from './hostTier.js'
import { loadVectors } from './matrixWeights.js'

/** An upload takes as long as a processor needs for about so many tokens. */
const LEAST_TO_BRING = 64

/** More threads lose more at barriers than they win: a layer's missing experts are few. */
const MOST_THREADS = 8

/** `tiersOf`: the tiers with so many slots in memory. */
export async function nodeHostTier(
  packed: PackedModel,
  options: BackendOptions,
  maxRows: number,
  wanted: number,
  tiersOf: (memorySlots: number) => ExpertTiers,
): Promise<HostTier> {
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
  options.onNotice?.(`${slots} experts in memory, computed by ${threads} threads`)
  return new HostTier(tiersOf(slots), layout.expertSize, names, workers, pool, LEAST_TO_BRING)
}
