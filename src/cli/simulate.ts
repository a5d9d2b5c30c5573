// What `moeflux simulate` does. The prediction of speed is simple on purpose: computing a token and reading what it
// misses, one after the other; overlap makes the real thing a little faster, a slow start of each read a little slower.
import { measureScratchDisk } from '../bench/scratchDisk.js'
import type { PolicyName } from '../experts/evictionPolicy.js'
import { slotsInBudget } from '../experts/expertCache.js'
import { decodeTrace, type RoutingTrace } from '../experts/routingTrace.js'
import { type SimulationResult, simulateTrace } from '../experts/simulateTrace.js'
import { storeRoot } from '../storage/modelStore.js'
import { readRegular } from '../storage/regularFile.js'
import type { Cli } from './action.js'
import type { SimulateCommandOptions } from './commands/simulate.js'
import { formatBytes, formatInteger, formatPercent, formatTable, threeDigits } from './format.js'

const policies: readonly PolicyName[] = ['lru', 'lrfu']
const shares = [0.05, 0.1, 0.25, 0.5, 0.75, 1] // of all experts

export interface SimulatedRow extends SimulationResult {
  readonly budget: number // bytes
  readonly tokensPerSecond: number
}

export async function simulate(cli: Cli, file: string, options: SimulateCommandOptions): Promise<void> {
  const trace = decodeTrace(await readRegular(file), file)
  const disk =
    options.disk ?? (await measureScratchDisk(storeRoot(), trace.expertBytes, [8], cli.signal)).speeds[0].bytesPerSecond
  const computeSeconds =
    options.computeMs === undefined ? trace.engine.computeSecondsPerToken : options.computeMs / 1000
  const rows: SimulatedRow[] = []
  for (const slots of slotCounts(trace, options.budgets)) {
    for (const policy of policies) {
      cli.signal.throwIfAborted()
      const result = simulateTrace(trace, policy, slots)
      const readSeconds = (result.decodeMissesPerToken * trace.expertBytes) / disk
      rows.push({ ...result, budget: slots * trace.expertBytes, tokensPerSecond: 1 / (computeSeconds + readSeconds) })
    }
  }
  const counted = checkAgainstEngine(trace)
  if (options.json)
    await cli.printJson({ model: trace.model, diskBytesPerSecond: disk, computeSeconds, engine: counted, rows })
  else await cli.print(formatRows(trace, rows, disk, computeSeconds, counted))
}

/** At least what a token needs of two layers, at most everything. */
function slotCounts(trace: RoutingTrace, budgets: readonly number[] | undefined): number[] {
  const all = trace.layers * trace.experts
  const least = Math.min(all, 2 * trace.expertsPerToken)
  const wanted =
    budgets?.map(bytes => slotsInBudget(bytes, trace.expertBytes)) ?? shares.map(share => Math.round(share * all))
  return [...new Set(wanted.map(slots => Math.max(least, Math.min(all, slots))))].sort((a, b) => a - b)
}

/** The engine's own count beside the simulator's for the same cache. */
function checkAgainstEngine({ engine, ...trace }: RoutingTrace) {
  const policy = engine.policy === 'lru' ? 'lru' : 'lrfu'
  const simulated = simulateTrace({ engine, ...trace }, policy, engine.slots)
  return {
    policy,
    slots: engine.slots,
    countedHitRate: engine.hits / (engine.hits + engine.misses),
    simulatedHitRate: simulated.hitRate,
  }
}

function formatRows(
  trace: RoutingTrace,
  rows: readonly SimulatedRow[],
  disk: number,
  computeSeconds: number,
  counted: ReturnType<typeof checkAgainstEngine>,
): string {
  const tokens = trace.steps.reduce((sum, step) => sum + step.tokens, 0)
  const head =
    `${trace.model}: ${formatInteger(tokens)} tokens, ${trace.layers} layers of ${trace.experts} experts of ` +
    `${formatBytes(trace.expertBytes)}, ${trace.expertsPerToken} per token\n` +
    `disk ${formatBytes(disk)}/s, computing ${threeDigits(computeSeconds * 1000)} ms per token\n` +
    `recorded with ${formatInteger(counted.slots)} slots (${counted.policy}): ${formatPercent(counted.countedHitRate)} hits ` +
    `counted, ${formatPercent(counted.simulatedHitRate)} simulated\n\n`
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
    rows.map(row => [
      formatBytes(row.budget),
      formatInteger(row.slots),
      row.policy,
      formatPercent(row.hitRate),
      formatPercent(row.decodeHitRate),
      formatBytes(row.decodeMissesPerToken * trace.expertBytes),
      threeDigits(row.tokensPerSecond),
    ]),
  )
  return head + table
}
