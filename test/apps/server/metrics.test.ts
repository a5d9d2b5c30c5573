// What /metrics says of the engine's own counters.
import { describe, expect, test } from 'vitest'
import { Metrics } from '#moeflux/apps/server/metrics.js'
import type { ModelStats } from '#moeflux/backends/stats.js'
import type { TierState } from '#moeflux/chat/stateStores.js'
import { WAIT_BOUNDS } from '#moeflux/stores/guardedStore.js'

const stats: ModelStats = {
  tokens: 0,
  promptTokens: 0,
  decodeTokens: 0,
  steps: 0,
  expertHits: 0,
  expertMisses: 0,
  prefetchHits: 0,
  prefetchReads: 7,
  prefetchWastedBytes: 500,
  bytesRead: 0,
  readSeconds: 0.5,
  readBusySeconds: 0,
  readLatencyMs: [0, 0, 3, 4, 0, 1],
  stallSeconds: 0,
  computeSeconds: 0,
  phaseSeconds: {},
  residentBytes: 0,
  expertSlots: 0,
  expertSlotsUsed: 0,
  expertMemory: 0,
  tiers: null,
}

function textOf(own: ModelStats, tiers: readonly TierState[] = []): Promise<string> {
  const found = { memory: 0, disk: 0, shared: 0, nowhere: 0 }
  const session = () => ({ running: 0, waiting: 0, states: 0, bytes: 0, byteBudget: 1, found, tiers })
  const models = () => ({ loaded: 1, loads: 1, unloads: 0 })
  const sources = {
    stats: () => own,
    experts: () => 96,
    session,
    slots: 8,
    models,
    active: () => 0,
    bodyBytes: () => 0,
  }
  return new Metrics(sources).registry.metrics()
}

describe('metrics', () => {
  test('has the times of reads as a histogram: counts up to each bound, their sum and number', async () => {
    const lines = (await textOf(stats)).split('\n').filter(line => line.includes('moeflux_expert_read_seconds'))
    expect(lines).toEqual([
      '# HELP moeflux_expert_read_seconds Time that a read of an expert took',
      '# TYPE moeflux_expert_read_seconds histogram',
      'moeflux_expert_read_seconds_bucket{le="0.000125"} 0',
      'moeflux_expert_read_seconds_bucket{le="0.00025"} 0',
      'moeflux_expert_read_seconds_bucket{le="0.0005"} 3',
      'moeflux_expert_read_seconds_bucket{le="0.001"} 7',
      'moeflux_expert_read_seconds_bucket{le="0.002"} 7',
      'moeflux_expert_read_seconds_bucket{le="0.004"} 8',
      'moeflux_expert_read_seconds_bucket{le="+Inf"} 8',
      'moeflux_expert_read_seconds_sum 0.5',
      'moeflux_expert_read_seconds_count 8',
    ])
  })

  test('has what was read ahead, and how much of it in vain', async () => {
    const text = await textOf(stats)
    expect(text).toContain('moeflux_prefetch_reads_total 7\n')
    expect(text).toContain('moeflux_prefetch_wasted_bytes_total 500\n')
  })

  test('has what answers waited for a store, by how long, and the longest', async () => {
    const waits = [3, 0, 0, 0, 0, 2, ...new Array(WAIT_BOUNDS.length - 6).fill(0), 1]
    const counters = { waits, waitSeconds: 12.5, longestWaitSeconds: 12.1 } as TierState['counters']
    const text = await textOf(stats, [{ label: 'shared', pending: 0, isSkipped: true, counters }])
    for (const line of [
      'moeflux_store_wait_seconds_bucket{tier="shared",le="0.005"} 3',
      'moeflux_store_wait_seconds_bucket{tier="shared",le="0.2"} 5',
      'moeflux_store_wait_seconds_bucket{tier="shared",le="10"} 5',
      'moeflux_store_wait_seconds_bucket{tier="shared",le="+Inf"} 6',
      'moeflux_store_wait_seconds_sum{tier="shared"} 12.5',
      'moeflux_store_wait_seconds_count{tier="shared"} 6',
      'moeflux_store_longest_wait_seconds{tier="shared"} 12.1',
      'moeflux_store_skipped{tier="shared"} 1',
    ]) {
      expect(text).toContain(`${line}\n`)
    }
  })

  test('has experts by tier, where they were found and who computed them', async () => {
    const tiers = {
      gpu: { slots: 20, used: 12, bytes: 0, hits: 70 },
      memory: { slots: 50, used: 40, bytes: 0, hits: 20 },
      disk: { hits: 10 },
      computedOnGpu: 75,
      computedOnCpu: 25,
      promotions: 4,
      uploads: 5,
      refills: 1,
    }
    const text = await textOf({ ...stats, tiers })
    for (const line of [
      'moeflux_experts 96',
      'moeflux_tier_slots{tier="gpu"} 20',
      'moeflux_tier_slots{tier="memory"} 50',
      'moeflux_tier_slots_used{tier="gpu"} 12',
      'moeflux_tier_slots_used{tier="memory"} 40',
      'moeflux_tier_hits_total{tier="gpu"} 70',
      'moeflux_tier_hits_total{tier="memory"} 20',
      'moeflux_tier_hits_total{tier="disk"} 10',
      'moeflux_experts_computed_total{by="gpu"} 75',
      'moeflux_experts_computed_total{by="cpu"} 25',
      'moeflux_expert_moves_total{kind="promotion"} 4',
      'moeflux_expert_moves_total{kind="upload"} 5',
      'moeflux_expert_moves_total{kind="refill"} 1',
    ]) {
      expect(text).toContain(`${line}\n`)
    }
    expect(await textOf(stats)).not.toMatch(/moeflux_tier_\w+\{/)
  })
})
