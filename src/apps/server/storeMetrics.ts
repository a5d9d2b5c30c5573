// What /metrics tells of the prefix cache and the stores behind it, by tier.
import { Counter, Gauge, type Registry } from 'prom-client'
import type { SessionState } from '../../index.js'
import { type TierState, WAIT_BOUNDS } from '../../internal.js'
import { CountedHistogram } from './countedHistogram.js'

type Values = (tier: TierState) => Record<string, number>

const COUNTERS: readonly [name: string, help: string, label: string, values: Values][] = [
  [
    'lookups_total',
    'Prompts whose beginning was looked for in a store, by how that went; skipped: it had not answered before',
    'result',
    ({ counters }) => ({
      hit: counters.hits,
      miss: counters.misses,
      slow: counters.slow,
      error: counters.errors,
      skipped: counters.skipped,
    }),
  ],
  [
    'objects_total',
    'Objects of states that were to be written: sent, or there already',
    'kind',
    ({ counters }) => ({ written: counters.objects, shared: counters.objectsShared }),
  ],
  [
    'bytes_total',
    'Bytes that went to and came from a store',
    'direction',
    ({ counters }) => ({ written: counters.bytesWritten, read: counters.bytesRead }),
  ],
  [
    'states_total',
    'States written, and not written because too many waited, it was too late, or the store failed',
    'result',
    ({ counters }) => ({ written: counters.statesWritten, dropped: counters.dropped }),
  ],
  [
    'trouble_total',
    'Objects that were damaged, and writes that failed',
    'kind',
    ({ counters }) => ({ damaged: counters.damaged, write: counters.writeErrors }),
  ],
]

const GAUGES: readonly [name: string, help: string, value: (tier: TierState) => number][] = [
  ['pending', 'States that wait to be written', ({ pending }) => pending],
  ['skipped', '1 while a store that did not answer is left alone', ({ isSkipped }) => Number(isSkipped)],
  ['longest_wait_seconds', 'The longest time that an answer waited for it', tier => tier.counters.longestWaitSeconds],
]

export function addStoreMetrics(registry: Registry, session: () => SessionState): void {
  const registers = [registry]
  new Counter({
    name: 'moeflux_prefix_lookups_total',
    help: 'Prompts by where the longest beginning of them was found',
    labelNames: ['tier'],
    registers,
    collect() {
      this.reset()
      for (const [tier, count] of Object.entries(session().found)) this.inc({ tier }, count)
    },
  })
  for (const [name, help, label, values] of COUNTERS) {
    new Counter({
      name: `moeflux_store_${name}`,
      help,
      labelNames: ['tier', label],
      registers,
      collect() {
        this.reset()
        for (const tier of session().tiers) {
          for (const [key, value] of Object.entries(values(tier))) this.inc({ tier: tier.label, [label]: key }, value)
        }
      },
    })
  }
  const waits = { name: 'moeflux_store_wait_seconds', help: 'Time that answers waited for a store', registers }
  new CountedHistogram(waits, () =>
    session().tiers.map(({ label, counters }) => {
      return { labels: { tier: label }, counts: counters.waits, bounds: WAIT_BOUNDS, sum: counters.waitSeconds }
    }),
  )
  for (const [name, help, value] of GAUGES) {
    new Gauge({
      name: `moeflux_store_${name}`,
      help,
      labelNames: ['tier'],
      registers,
      collect() {
        for (const tier of session().tiers) this.set({ tier: tier.label }, value(tier))
      },
    })
  }
}
