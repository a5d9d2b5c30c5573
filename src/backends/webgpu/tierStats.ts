// What is told of experts on a GPU and in memory beside it.
import type { StreamerStats } from '../../experts/streamerCore.js'
import type { TierStats } from '../stats.js'
import type { HostTier } from './experts/cpuTier.js'

export function tierStats({ tiers, bytes }: Pick<HostTier, 'tiers' | 'bytes'>, gpuBytes: number): TierStats {
  const { gpu, memory, counters } = tiers
  const { promotions, uploads, refills } = counters
  const wanted = counters.gpu + counters.memory + counters.disk
  const computedOnGpu = Math.min(wanted, counters.gpu + uploads)
  return {
    gpu: { slots: gpu.slotsLeft, used: gpu.slotsUsed, bytes: gpuBytes, hits: counters.gpu },
    memory: { slots: memory.slots, used: memory.slotsUsed, bytes, hits: counters.memory },
    disk: { hits: counters.disk },
    computedOnGpu,
    computedOnCpu: wanted - computedOnGpu,
    promotions,
    uploads,
    refills,
  }
}

/** The streamers of both as if they were one: what was found on the GPU or in memory was no miss. */
export function streamerStats(
  onGpu: StreamerStats,
  { tiers, stats }: Pick<HostTier, 'tiers' | 'stats'>,
): StreamerStats {
  const { gpu, memory, counters } = tiers
  return {
    ...stats, // what is read ahead is read into memory
    expertHits: counters.gpu + counters.memory,
    expertMisses: counters.disk,
    stallSeconds: onGpu.stallSeconds + stats.stallSeconds,
    expertSlots: gpu.slotsLeft + memory.slots,
    expertSlotsUsed: gpu.slotsUsed + memory.slotsUsed,
  }
}
