// `moeflux simulate` for experts on a GPU, in memory and on disk: where decoded tokens find theirs, what moves, and the optimum
// beside it. Its share on the GPU and its share in both are ceilings, each for itself.
import { availableParallelism } from 'node:os'
import { formatBytes, formatPercent, formatTable, threeDigits } from '../../apps/cli/format.js'
import type { SizeOrShare } from '../../apps/cli/optionValues.js'
import { UsageError } from '../../base/errors.js'
import type { PolicyName } from '../../experts/evictionPolicy.js'
import { slotsInBudget } from '../../experts/expertCache.js'
import { DEFAULT_FILLS_PER_STEP, DEFAULT_MOVES_PER_STEP } from '../../experts/expertTiers.js'
import { promptTimes, secondsPerToken, type TierSpeeds, usesWorthAMove } from '../../experts/tierSpeed.js'
import { optimalHits } from './optimalHits.js'
import type { RoutingTrace } from './routingTrace.js'
import { type ReplayHost, type ReplaySpeeds, type SimulatedTable, speedsInWords } from './simulatedTable.js'
import type { SimulateCommandOptions } from './simulateOptions.js'
import { simulateTiers, type TierRules, type TierSizes } from './simulateTiers.js'

const POLICIES: readonly PolicyName[] = ['lru', 'lrfu']
const CPU_BYTES_PER_CORE = 5e9 // 4-bit experts times int8 activations (performance-log.md)
const UPLOAD_BYTES_PER_SECOND = 4e9
const WAIT_MICROSECONDS = 100

type ThreeTierOptions = SimulateCommandOptions & { readonly gpu: readonly SizeOrShare[] }

/** Shares and counts are of decoded tokens. */
interface ThreeTierRow {
  readonly gpuBytes: number
  readonly memoryBytes: number
  readonly gpuSlots: number
  readonly memorySlots: number
  readonly policy: PolicyName | 'optimum'
  readonly gpuRate: number // of lookups, by where the expert was found
  readonly memoryRate: number
  readonly diskRate: number
  readonly layersMissedPerToken: number | null
  readonly promotedPerToken: number | null // experts
  readonly readPerToken: number // experts, those that left the GPU among them
  readonly tokensPerSecond: number | null
}

const FULL_WIDTH = 76 // of a table with decimals

export function simulateThreeTiers(
  trace: RoutingTrace,
  options: ThreeTierOptions,
  replay: ReplaySpeeds,
  { signal, width }: ReplayHost,
): SimulatedTable {
  const speeds: TierSpeeds = {
    ...replay,
    cpuBytesPerSecond: options.cpu ?? CPU_BYTES_PER_CORE * availableParallelism(),
    uploadBytesPerSecond: options.upload ?? UPLOAD_BYTES_PER_SECOND,
    waitSeconds: (options.waitUs ?? WAIT_MICROSECONDS) / 1e6,
  }
  const times = promptTimes(trace.expertBytes, speeds)
  const rules: TierRules = {
    bytesPerStep: (options.promote ?? DEFAULT_MOVES_PER_STEP) * trace.expertBytes,
    usesToPay: usesWorthAMove(times.uploadSeconds, times.expertSeconds),
    fillsPerStep: DEFAULT_FILLS_PER_STEP,
    times,
  }
  const rows = tierSizes(trace, options).flatMap(sizes => [
    ...POLICIES.map(policy => {
      signal.throwIfAborted()
      return replayTiers(trace, policy, sizes, rules, speeds)
    }),
    optimum(trace, sizes),
  ])
  const { cpuBytesPerSecond: cpu, uploadBytesPerSecond: upload, waitSeconds: wait } = speeds
  const assumed =
    `${speedsInWords(replay)}\nprocessors ${formatBytes(cpu)}/s, uploads ${formatBytes(upload)}/s, ` +
    `${threeDigits(wait * 1e6)} µs for a layer that misses\n` +
    "a prompt's missing experts are shared out so that both sides end together"
  return { rows: rows.map(row => ({ ...row })), facts: { ...speeds }, assumed, table: formatRows(trace, rows, width) }
}

/** Every size of the GPU with every size of memory. */
function tierSizes(trace: RoutingTrace, { gpu, memory = [{ share: 1 }] }: ThreeTierOptions): TierSizes[] {
  const all = trace.layers * trace.experts
  const slots = (size: SizeOrShare) =>
    Math.min(all, 'share' in size ? Math.round(size.share * all) : slotsInBudget(size.bytes, trace.expertBytes))
  const least = Math.min(all, 2 * trace.expertsPerToken)
  const sizes = gpu.flatMap(onGpu => memory.map(inMemory => ({ gpuSlots: slots(onGpu), memorySlots: slots(inMemory) })))
  if (sizes.some(({ memorySlots }) => memorySlots < least)) {
    throw new UsageError(`--memory: want room for ${least} experts at least, ${formatBytes(least * trace.expertBytes)}`)
  }
  return sizes
}

function replayTiers(
  trace: RoutingTrace,
  policy: PolicyName,
  sizes: TierSizes,
  rules: TierRules,
  speeds: TierSpeeds,
): ThreeTierRow {
  const { decode } = simulateTiers(trace, policy, sizes, rules)
  const lookups = decode.gpu + decode.memory + decode.disk
  const load = {
    layersMissed: decode.layersMissed / decode.steps,
    expertsMissed: (decode.memory + decode.disk) / decode.steps,
    expertsRead: decode.disk / decode.steps,
    expertsPromoted: decode.promotions / decode.steps,
  }
  return {
    ...bytesOf(trace, sizes),
    policy,
    gpuRate: decode.gpu / lookups,
    memoryRate: decode.memory / lookups,
    diskRate: decode.disk / lookups,
    layersMissedPerToken: load.layersMissed,
    promotedPerToken: load.expertsPromoted,
    readPerToken: (decode.disk + decode.refills) / decode.steps,
    tokensPerSecond: 1 / secondsPerToken(load, trace.expertBytes, speeds),
  }
}

function optimum(trace: RoutingTrace, sizes: TierSizes): ThreeTierRow {
  const { gpuSlots, memorySlots } = sizes
  const gpu = optimalHits(trace, { slots: gpuSlots, from: 'stepEnd', decodeOnly: true })
  const both = optimalHits(trace, { slots: gpuSlots + memorySlots, from: 'use', decodeOnly: true })
  const steps = trace.steps.filter(step => step.tokens === 1).length
  return {
    ...bytesOf(trace, sizes),
    policy: 'optimum',
    gpuRate: gpu.hits / gpu.wanted,
    memoryRate: (both.hits - gpu.hits) / gpu.wanted,
    diskRate: 1 - both.hits / both.wanted,
    layersMissedPerToken: null,
    promotedPerToken: null,
    readPerToken: (both.wanted - both.hits) / steps,
    tokensPerSecond: null,
  }
}

function bytesOf({ expertBytes }: RoutingTrace, { gpuSlots, memorySlots }: TierSizes) {
  return { gpuBytes: gpuSlots * expertBytes, memoryBytes: memorySlots * expertBytes, gpuSlots, memorySlots }
}

function formatRows({ expertBytes }: RoutingTrace, rows: readonly ThreeTierRow[], width: number): string {
  const percent = (rate: number) => (width < FULL_WIDTH ? `${Math.round(rate * 100)}%` : formatPercent(rate))
  const bytes = (experts: number | null) => (experts === null ? '-' : formatBytes(experts * expertBytes))
  return formatTable(
    [
      { title: 'GPU', align: 'right' },
      { title: 'memory', align: 'right' },
      { title: 'policy' },
      { title: 'on GPU', align: 'right' },
      { title: 'in RAM', align: 'right' },
      { title: 'on disk', align: 'right' },
      { title: 'up a token', align: 'right' },
      { title: 'read', align: 'right' },
      { title: 'tok/s', align: 'right' },
    ],
    rows.map(row => [
      formatBytes(row.gpuBytes),
      formatBytes(row.memoryBytes),
      row.policy,
      percent(row.gpuRate),
      percent(row.memoryRate),
      percent(row.diskRate),
      bytes(row.promotedPerToken),
      bytes(row.readPerToken),
      row.tokensPerSecond === null ? '-' : threeDigits(row.tokensPerSecond),
    ]),
    width,
  )
}
