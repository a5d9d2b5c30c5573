// What /metrics tells of the prefix cache and the stores behind it, by tier.
import { Counter, Gauge, type Registry } from 'prom-client'
import type { SessionState } from '../session/session.js'
import type { TierState } from '../session/stateStores.js'

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
    ({ counters }) => ({ written: counters.states, dropped: counters.dropped }),
  ],
  [
    'trouble_total',
    'Objects that were damaged, and writes that failed',
    'kind',
    ({ counters }) => ({ damaged: counters.damaged, write: counters.writeErrors }),
  ],
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
  new Counter({
    name: 'moeflux_store_wait_seconds_total',
    help: 'Time that answers waited for a store',
    labelNames: ['tier'],
    registers,
    collect() {
      this.reset()
      for (const { label, counters } of session().tiers) this.inc({ tier: label }, counters.lookupSeconds)
    },
  })
  new Gauge({
    name: 'moeflux_store_pending',
    help: 'States that wait to be written',
    labelNames: ['tier'],
    registers,
    collect() {
      for (const { label, pending } of session().tiers) this.set({ tier: label }, pending)
    },
  })
  new Gauge({
    name: 'moeflux_store_skipped',
    help: '1 while a store that did not answer is left alone',
    labelNames: ['tier'],
    registers,
    collect() {
      for (const { label, isSkipped } of session().tiers) this.set({ tier: label }, Number(isSkipped))
    },
  })
}
