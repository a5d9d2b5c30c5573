// What /metrics says of the engine's own counters.
import { describe, expect, it } from 'vitest'
import type { ModelStats } from '#moeflux/compute/stats.js'
import { Metrics } from '#moeflux/server/metrics.js'

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

function textOf(own: ModelStats): Promise<string> {
  const session = () => ({ running: 0, waiting: 0, states: 0, bytes: 0 })
  return new Metrics({ stats: () => own, session, active: () => 0, bodyBytes: () => 0 }).registry.metrics()
}

describe('metrics', () => {
  it('has the times of reads as a histogram: counts up to each bound, their sum and number', async () => {
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

  it('has what was read ahead, and how much of it in vain', async () => {
    const text = await textOf(stats)
    expect(text).toContain('moeflux_prefetch_reads_total 7\n')
    expect(text).toContain('moeflux_prefetch_wasted_bytes_total 500\n')
  })
})
