// What `moeflux bench` does: finds or writes the model, runs the benchmark, measures the disk in the same run, reports.
import { stat } from 'node:fs/promises'
import type { Cli } from '../../apps/cli/action.js'
import { draftsLine } from '../../apps/cli/chat/chatStats.js'
import { findOrPull } from '../../apps/cli/findOrPull.js'
import {
  diskLine,
  formatBytes,
  formatFields,
  formatInteger,
  formatPercent,
  threeDigits,
} from '../../apps/cli/format.js'
import type { ModelOptions } from '../../apps/cli/modelOptions.js'
import { openCliModel } from '../../apps/cli/openCliModel.js'
import type { TierStats, TierUse } from '../../backends/stats.js'
import { type DiskMeasurement, measureDisk } from '../../experts/readers/nodeDiskSpeed.js'
import { preparePacked } from '../../files/convert/nodePreparePacked.js'
import { DEMO_NAME, storeRoot } from '../../files/models/modelStore.js'
import { openNodeFolder } from '../../files/nodeFolder.js'
import { openPacked } from '../../files/packed/openPacked.js'
import type { QuantBits } from '../../model/tensors.js'
import { checkContextRoom } from '../checkContextRoom.js'
import { ensureSyntheticModel } from '../synthetic/syntheticModel.js'
import { parseSyntheticSpec } from '../synthetic/syntheticSpec.js'
import { type BenchResult, dropFromPageCache, type PhaseCounters, runBench } from './runBench.js'
import { tokenSourceFor } from './tokenSource.js'

export interface BenchCommandOptions extends ModelOptions {
  readonly synthetic?: string
  readonly experts?: number
  readonly bits?: QuantBits
  readonly skew?: number
  readonly seed: number
  readonly prompt: number
  readonly tokens: number
  readonly repeat: number
  readonly sequences: number
  readonly warmup: boolean
  readonly greedy?: boolean
  readonly cold?: boolean
  readonly disk: boolean
  readonly accept?: number
  readonly profile?: boolean
  readonly json?: boolean
}

const DISK_SECONDS = 1
const DISK_DEPTH = 8 // what the reader threads keep under way

export interface BenchReport extends BenchResult {
  readonly model: string
  readonly backend: string
  readonly description: string
  readonly cold: boolean
  readonly accept: number | null // the likelihood that guesses were drawn with; null: they were compared
  readonly disk: DiskMeasurement | null
  /** Bytes read per second while decoding, beside what this disk gives with nothing else to do. */
  readonly streamingEfficiency: number | null
  /** The same for the time in which reads were under way. */
  readonly readingEfficiency: number | null
}

export async function benchModel(cli: Cli, options: BenchCommandOptions): Promise<void> {
  const folder = await modelFolder(cli, options)
  const cold = options.cold === true && (await dropFromPageCache(folder))
  if (options.cold && !cold) cli.notice('the page cache could not be dropped: that needs GNU dd')
  const tokens = options.sequences * (options.prompt + options.tokens)
  const planFor = { tokens, sequences: options.sequences }
  const model = await openCliModel(cli, { ...options, model: folder }, { planFor })
  let result: BenchResult
  try {
    checkContextRoom(model, options.prompt, options.tokens)
    const source = await tokenSourceFor(model, { greedy: options.greedy === true, seed: options.seed })
    const bar = cli.progressBar('tokens')
    result = await runBench(model, source, {
      promptTokens: options.prompt,
      decodeTokens: options.tokens,
      repeat: options.repeat,
      sequences: options.sequences,
      warmup: options.warmup,
      accept: options.accept,
      signal: cli.signal,
      onProgress: (loaded, total) => bar.update({ phase: 'bench', loaded, total }),
    })
    bar.clear()
  } finally {
    await model.close()
  }
  const disk = options.disk ? await measureModelDisk(folder, options, cli.signal) : null
  const raw = disk?.speeds.find(speed => speed.depth === DISK_DEPTH)?.bytesPerSecond
  const report: BenchReport = {
    model: model.name,
    backend: model.backend,
    description: model.backendDescription,
    cold,
    accept: options.accept ?? null,
    ...result,
    disk,
    streamingEfficiency: raw && result.decode.bytesRead > 0 ? result.decode.bytesPerSecond / raw : null,
    readingEfficiency: raw && result.decode.bytesPerBusySecond ? result.decode.bytesPerBusySecond / raw : null,
  }
  if (options.json) await cli.printJson(report)
  else await cli.print(formatReport(report, options.profile === true, cli.width))
}

async function modelFolder(cli: Cli, options: BenchCommandOptions): Promise<string> {
  if (options.synthetic === undefined) {
    const folder = await findOrPull(cli, options.model ?? DEMO_NAME, options.yes === true)
    return preparePacked(folder, { onNotice: line => cli.notice(line), signal: cli.signal })
  }
  const spec = parseSyntheticSpec(options.synthetic, { ...options, draftHead: Boolean(options.drafts) })
  const bar = cli.progressBar()
  try {
    return await ensureSyntheticModel(spec, storeRoot(), {
      onProgress: progress => bar.update(progress),
      onNotice: line => cli.notice(line),
      signal: cli.signal,
    })
  } finally {
    bar.clear()
  }
}

async function measureModelDisk(
  folder: string,
  options: BenchCommandOptions,
  signal: AbortSignal,
): Promise<DiskMeasurement | null> {
  const packed = await openPacked(await openNodeFolder(folder, { links: 'any' }), { expertBits: options.expertBits })
  const files = packed.experts.files.map(file => file.name)
  const readBytes = packed.experts.layout.expertSize
  await packed.close()
  if (files.length === 0) return null
  const fileSize = (await stat(files[0])).size
  return measureDisk({ files, fileSize, readBytes, depths: [1, 4, DISK_DEPTH], seconds: DISK_SECONDS, signal })
}

function memoryLine(report: BenchReport): string {
  const weights = `peak ${formatBytes(report.peakRssBytes)}; resident weights ${formatBytes(report.residentBytes)}`
  if (report.expertSlots === 0) return weights
  const used = `${formatInteger(report.expertSlotsUsed)} of ${formatInteger(report.expertSlots)} used`
  return `${weights}, expert slots ${formatBytes(report.expertMemory)} (${used})`
}

function formatReport(report: BenchReport, profile: boolean, width: number): string {
  const { prefill, decode, disk } = report
  const rate = (median: number, runs: readonly number[]) =>
    `${threeDigits(median)} tok/s${runs.length > 1 ? `  (${runs.map(threeDigits).join(', ')})` : ''}`
  const fields: [string, string][] = [
    ['model', report.model],
    ['backend', report.description],
    ['prefill', `${rate(report.prefillTokensPerSecond, report.prefillRuns)}, ${report.promptTokens} tokens`],
    ['decode', `${rate(report.decodeTokensPerSecond, report.decodeRuns)}, ${report.decodeTokens} tokens`],
    ...togetherFields(report),
    ['first token', `${threeDigits(report.timeToFirstTokenMs)} ms`],
  ]
  if (report.drafts) {
    const how = report.accept === null ? '' : ` (drawn with ${report.accept}, not compared)`
    fields.push(['guesses', `${draftsLine(report.drafts)}${how}`])
  }
  if (report.expertSlots > 0) {
    fields.push(
      ['prefill experts', phaseLine(prefill)],
      ['decode experts', phaseLine(decode)],
      ['prefill prefetch', prefetchLine(prefill)],
      ['decode prefetch', prefetchLine(decode)],
    )
  }
  fields.push(['memory', memoryLine(report)])
  if (report.tiers) fields.push(...tierFields(report.tiers))
  if (disk) fields.push(['disk', diskLine(disk)])
  if (decode.bytesRead > 0) fields.push(['streaming', streamingLine(report)])
  if (decode.bytesRead > 0 && disk) fields.push(['per token', boundLine(decode, disk)])
  let text = formatFields(fields, width)
  if (profile) {
    const total = Object.values(report.phaseSeconds).reduce((a, b) => a + b, 0)
    // What a model does not have, such as a dense one experts, is left out.
    const phases = Object.entries(report.phaseSeconds)
      .filter(([, s]) => s > 0)
      .sort((a, b) => b[1] - a[1])
    text +=
      '\n' + formatFields(phases.map(([name, s]) => [name, `${threeDigits(s * 1000)} ms  ${formatPercent(s / total)}`]))
  }
  return text
}

function togetherFields({ together }: BenchReport): [string, string][] {
  if (together === null) return []
  const { sequences, tokensPerSecond, timesOne } = together
  const each = `${threeDigits(tokensPerSecond / sequences)} each`
  const line = `${sequences} sequences, ${threeDigits(tokensPerSecond)} tok/s (${each}), ${threeDigits(timesOne)} times one alone`
  return [['together', line]]
}

function phaseLine(counters: PhaseCounters): string {
  if (counters.hits + counters.misses === 0) return 'not counted'
  return (
    `${formatPercent(counters.hitRate)} hits, ${formatInteger(counters.misses)} read on demand, ` +
    `${formatBytes(counters.bytesPerToken)} per token, stalled ${threeDigits(counters.stallMsPerToken)} ms per token`
  )
}

function tierFields(tiers: TierStats): [string, string][] {
  const { gpu, memory, disk, computedOnGpu, computedOnCpu, promotions, refills } = tiers
  const slots = ({ used, slots, bytes }: TierUse) =>
    `${formatInteger(used)} of ${formatInteger(slots)} slots (${formatBytes(bytes)})`
  const shares = (parts: readonly (readonly [string, number])[]) => {
    const all = parts.reduce((sum, [, count]) => sum + count, 0)
    return parts.map(([name, count]) => `${name} ${formatPercent(count / Math.max(1, all))}`).join(', ')
  }
  const found = shares([
    ['GPU', gpu.hits],
    ['memory', memory.hits],
    ['disk', disk.hits],
  ])
  const computed = shares([
    ['GPU', computedOnGpu],
    ['processors', computedOnCpu],
  ])
  return [
    ['experts on GPU', slots(gpu)],
    ['experts in memory', slots(memory)],
    ['decode found', found],
    ['decode computed', `${computed}; ${formatInteger(promotions)} went up, ${formatInteger(refills)} read again`],
  ]
}

function streamingLine({ decode, streamingEfficiency, readingEfficiency }: BenchReport): string {
  const share = (efficiency: number | null) =>
    efficiency === null ? '' : ` (${formatPercent(efficiency)} of the disk)`
  let line = `${formatBytes(decode.bytesPerSecond)}/s while decoding${share(streamingEfficiency)}`
  if (decode.bytesPerBusySecond !== null) {
    line += `, ${formatBytes(decode.bytesPerBusySecond)}/s while reading${share(readingEfficiency)}`
  }
  if (decode.systemBytesRead !== null && decode.systemBytesRead > 0) {
    line += `; the disk read ${threeDigits(decode.systemBytesRead / decode.bytesRead)} times these bytes`
  }
  return line
}

/** Both sides of what streaming is bound by: the time of a token, and that of its reads with nothing else to do. */
function boundLine(decode: PhaseCounters, disk: DiskMeasurement): string {
  const raw = Math.max(...disk.speeds.map(speed => speed.bytesPerSecond))
  const ms = (decode.seconds / decode.tokens) * 1000
  const alone = (decode.bytesPerToken / raw) * 1000
  return `${threeDigits(ms)} ms, of which its reads alone would take ${threeDigits(alone)} ms on this disk`
}

function prefetchLine(counters: PhaseCounters): string {
  if (counters.prefetchReads === 0) return 'none'
  const wasted = formatBytes(counters.prefetchWastedBytes)
  return `${formatInteger(counters.prefetchReads)} reads, ${formatInteger(counters.prefetchHits)} of use, ${wasted} wasted`
}
