// `moeflux simulate` for experts in one kind of memory: hit rates of each policy and budget, and the optimum beside them. The
// prediction of speed is simple on purpose: computing a token and reading what it misses, one after the other; overlap makes
// the real thing a little faster, a slow start of each read a little slower.
import { formatBytes, formatInteger, formatPercent, formatTable, threeDigits } from '../../apps/cli/format.js'
import { OptionError } from '../../base/errors.js'
import type { PolicyName } from '../../experts/evictionPolicy.js'
import { slotsInBudget } from '../../experts/expertCache.js'
import { optimalHits } from './optimalHits.js'
import type { RoutingTrace } from './routingTrace.js'
import { type ReplayHost, type ReplaySpeeds, type SimulatedTable, speedsInWords } from './simulatedTable.js'
import { simulateTrace } from './simulateTrace.js'

const POLICIES: readonly PolicyName[] = ['lru', 'lrfu']
const SHARES = [0.05, 0.1, 0.25, 0.5, 0.75, 1] // of all experts

interface OneTierRow {
  readonly budget: number // bytes
  readonly slots: number
  readonly policy: PolicyName | 'optimum'
  readonly hitRate: number // over all steps
  readonly decodeHitRate: number
  readonly decodeMissesPerToken: number
}

export interface EngineCheck {
  readonly policy: PolicyName
  readonly slots: number
  readonly countedHitRate: number
  readonly simulatedHitRate: number
}

export function simulateOneTier(
  trace: RoutingTrace,
  budgets: readonly number[] | undefined,
  speeds: ReplaySpeeds,
  { signal, width }: ReplayHost,
): SimulatedTable {
  const rows = slotCounts(trace, budgets).flatMap(slots => [
    ...POLICIES.map(policy => {
      signal.throwIfAborted()
      return replay(trace, policy, slots)
    }),
    optimum(trace, slots),
  ])
  const predicted = rows.map(row => {
    const readSeconds = (row.decodeMissesPerToken * trace.expertBytes) / speeds.diskBytesPerSecond
    return { ...row, tokensPerSecond: 1 / (speeds.computeSeconds + readSeconds) }
  })
  const table = formatTable(
    [
      { title: 'experts in memory', align: 'right' },
      { title: 'slots', align: 'right' },
      { title: 'policy' },
      { title: 'hits', align: 'right' },
      { title: 'hits in decode', align: 'right' },
      { title: 'read per token', align: 'right' },
      { title: 'tok/s', align: 'right' },
    ],
    predicted.map(row => [
      formatBytes(row.budget),
      formatInteger(row.slots),
      row.policy,
      formatPercent(row.hitRate),
      formatPercent(row.decodeHitRate),
      formatBytes(row.decodeMissesPerToken * trace.expertBytes),
      threeDigits(row.tokensPerSecond),
    ]),
    width,
  )
  return { rows: predicted, facts: { ...speeds }, assumed: speedsInWords(speeds), table }
}

/** The engine's own count beside the simulator's for the same cache. */
export function checkAgainstEngine(trace: RoutingTrace): EngineCheck {
  const { engine } = trace
  const policy = engine.policy === 'lru' ? 'lru' : 'lrfu'
  return {
    policy,
    slots: engine.slots,
    countedHitRate: engine.hits / (engine.hits + engine.misses),
    simulatedHitRate: simulateTrace(trace, policy, engine.slots).hitRate,
  }
}

/** At least what a token needs of two layers, as the engine demands, and at most everything. */
function slotCounts(trace: RoutingTrace, budgets: readonly number[] | undefined): number[] {
  const all = trace.layers * trace.experts
  const least = Math.min(all, 2 * trace.expertsPerToken)
  for (const bytes of budgets ?? []) {
    if (slotsInBudget(bytes, trace.expertBytes) >= least) continue
    const want = `at least ${least * trace.expertBytes} bytes (${least} experts of ${trace.expertBytes})`
    throw new OptionError('budgets', bytes, want)
  }
  const wanted =
    budgets?.map(bytes => slotsInBudget(bytes, trace.expertBytes)) ?? SHARES.map(share => Math.round(share * all))
  return [...new Set(wanted.map(slots => Math.max(least, Math.min(all, slots))))].sort((a, b) => a - b)
}

function replay(trace: RoutingTrace, policy: PolicyName, slots: number): OneTierRow {
  const { hitRate, decodeHitRate, decodeMissesPerToken } = simulateTrace(trace, policy, slots)
  return { budget: slots * trace.expertBytes, slots, policy, hitRate, decodeHitRate, decodeMissesPerToken }
}

function optimum(trace: RoutingTrace, slots: number): OneTierRow {
  const all = optimalHits(trace, { slots, from: 'use' })
  const decode = optimalHits(trace, { slots, from: 'use', decodeOnly: true })
  return {
    budget: slots * trace.expertBytes,
    slots,
    policy: 'optimum',
    hitRate: all.hits / all.wanted,
    decodeHitRate: decode.hits / decode.wanted,
    decodeMissesPerToken: (decode.wanted - decode.hits) / trace.steps.filter(step => step.tokens === 1).length,
  }
}
