// The benchmark itself: a prompt, then single tokens, several times over, through the public model and context. Measures
// and counts; prints nothing. What is fed in comes from a `TokenSource`, so that synthetic models get their stream and
// real ones get text.
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { ModelStats, TierStats } from '../../backends/stats.js'
import { median } from '../../base/median.js'
import type { DraftStats } from '../../engine/draftGovernor.js'
import type { EngineModel } from '../../engine/model.js'
import { type DecodeStreamOptions, decodeStream } from './decodeStream.js'
import type { TokenSource } from './tokenSource.js'

const WARM_UP_MS = 1000

export interface BenchOptions {
  readonly promptTokens: number
  readonly decodeTokens: number
  readonly repeat: number
  readonly sequences?: number // more than 1: after each run also so many that decode together
  readonly warmup: boolean
  /** With drafts: guesses are right with this likelihood, by dice; default they are compared with the model's best tokens. */
  readonly accept?: number
  readonly signal?: AbortSignal
  readonly onProgress?: (done: number, total: number) => void
}

/** Medians over the runs; counters are sums over them, warm-up left out. */
export interface BenchResult {
  readonly runs: number
  readonly promptTokens: number
  readonly decodeTokens: number
  readonly prefillTokensPerSecond: number
  readonly decodeTokensPerSecond: number
  readonly timeToFirstTokenMs: number
  readonly prefillRuns: readonly number[] // tokens per second of each run
  readonly decodeRuns: readonly number[]
  readonly prefill: PhaseCounters
  readonly decode: PhaseCounters
  readonly together: TogetherResult | null
  readonly residentBytes: number
  readonly expertMemory: number
  readonly expertSlots: number
  readonly expertSlotsUsed: number
  readonly tiers: TierStats | null // slots at the end; everything else is of decoding
  readonly peakRssBytes: number
  readonly phaseSeconds: Readonly<Record<string, number>>
  readonly drafts: DraftStats | null // of all runs, warm-up too
}

/** Several sequences decoding at once, beside one alone in the same run. */
export interface TogetherResult {
  readonly sequences: number
  readonly tokensPerSecond: number // of all of them
  readonly runs: readonly number[]
  readonly timesOne: number // the median over the runs of all together ÷ one alone
}

export interface PhaseCounters {
  readonly tokens: number
  readonly seconds: number
  readonly hits: number
  readonly misses: number
  readonly hitRate: number // of wanted experts; NaN where none was wanted
  readonly prefetchReads: number
  readonly prefetchHits: number
  readonly prefetchWastedBytes: number
  readonly bytesRead: number
  readonly bytesPerToken: number
  readonly bytesPerSecond: number // read, over wall time
  readonly bytesPerBusySecond: number | null // over the time with a read under way; null where nobody can tell
  readonly systemBytesRead: number | null // by the whole process, as the system counts it; null where it does not
  readonly stallMsPerToken: number
  readonly meanReadMs: number
}

export async function runBench(model: EngineModel, source: TokenSource, options: BenchOptions): Promise<BenchResult> {
  const { promptTokens, decodeTokens, repeat } = options
  const prefill: Span[] = []
  const decode: Span[] = []
  const ttft: number[] = []
  const perRun = promptTokens + decodeTokens
  let done = 0
  const sequences = options.sequences ?? 1
  const together: number[] = []
  const total = (perRun + (sequences > 1 ? sequences * decodeTokens : 0)) * repeat
  const tick = (tokens: number) => options.onProgress?.((done += tokens), total)

  if (options.warmup) await warmUp(model, source, options)
  for (let run = 0; run < repeat; run++) {
    const spans = await oneRun(model, source, options, run, tick)
    prefill.push(spans.prefill)
    decode.push(spans.decode)
    ttft.push(spans.prefill.seconds * 1000)
    if (sequences === 1) continue
    const { signal, accept } = options
    const how = { sequences, promptTokens, decodeTokens, signal, accept, onTokens: tick }
    together.push(await runTogether(model, source, repeat + run * sequences, how))
  }
  const after = model.stats()
  const rates = (spans: readonly Span[]) => spans.map(span => span.tokens / span.seconds)
  return {
    runs: repeat,
    promptTokens,
    decodeTokens,
    prefillTokensPerSecond: median(rates(prefill)),
    decodeTokensPerSecond: median(rates(decode)),
    timeToFirstTokenMs: median(ttft),
    prefillRuns: rates(prefill),
    decodeRuns: rates(decode),
    prefill: countersOf(prefill),
    decode: countersOf(decode),
    together:
      sequences === 1
        ? null
        : {
            sequences,
            tokensPerSecond: median(together),
            runs: together,
            timesOne: median(together.map((rate, run) => rate / rates(decode)[run])),
          },
    residentBytes: after.residentBytes,
    expertMemory: after.expertMemory,
    expertSlots: after.expertSlots,
    expertSlotsUsed: after.expertSlotsUsed,
    tiers: tiersOf(decode),
    peakRssBytes: process.resourceUsage().maxRSS * 1024,
    phaseSeconds: phasesOf([...prefill, ...decode]),
    drafts: after.drafts,
  }
}

/**
 * The experts that are read at leisure after opening, then at least one short run. A small model gets as many as compilers need
 * to have seen its code often enough.
 */
async function warmUp(model: EngineModel, source: TokenSource, options: BenchOptions): Promise<void> {
  const promptTokens = Math.min(16, options.promptTokens) // a context may have room for no more
  const short = { ...options, promptTokens, decodeTokens: Math.min(8, options.decodeTokens) }
  await untilAborted(model.loaded(), options.signal)
  const until = performance.now() + WARM_UP_MS
  do await oneRun(model, source, short, -1, () => {})
  while (performance.now() < until)
}

/** Ends with the work, or throws when it is called off; the work goes on by itself. */
async function untilAborted(work: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return work
  signal.throwIfAborted()
  const ended = new AbortController()
  const abort = new Promise<void>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason), { signal: ended.signal })
  })
  await Promise.race([work, abort]).finally(() => ended.abort())
}

interface Span {
  readonly tokens: number
  readonly seconds: number
  readonly systemBytes: number // NaN where the system does not count
  readonly before: ModelStats
  readonly after: ModelStats
}

async function oneRun(
  model: EngineModel,
  source: TokenSource,
  options: BenchOptions,
  run: number,
  tick: (tokens: number) => void,
): Promise<{ prefill: Span; decode: Span }> {
  const { signal } = options
  const context = model.createContext({ maxCheckpoints: 0 })
  try {
    const prompt = source.prompt(run, options.promptTokens)
    const start = model.stats()
    const startBytes = systemBytesRead()
    const t0 = performance.now()
    const first = await context.evaluate(prompt, { signal })
    const t1 = performance.now()
    const middle = model.stats()
    const middleBytes = systemBytesRead()
    tick(prompt.length)
    const { drafts } = model
    drafts?.answerBegins()
    await decodeStream(context, drafts, source, run, first, { ...options, onTokens: tick })
    const t2 = performance.now()
    const end = model.stats()
    return {
      prefill: {
        tokens: prompt.length,
        seconds: (t1 - t0) / 1000,
        systemBytes: middleBytes - startBytes,
        before: start,
        after: middle,
      },
      decode: {
        tokens: options.decodeTokens,
        seconds: (t2 - t1) / 1000,
        systemBytes: systemBytesRead() - middleBytes,
        before: middle,
        after: end,
      },
    }
  } finally {
    await context.close()
  }
}

function countersOf(spans: readonly Span[]): PhaseCounters {
  type Counter = { [K in keyof ModelStats]-?: ModelStats[K] extends number ? K : never }[keyof ModelStats]
  const sum = (field: Counter) => spans.reduce((total, { before, after }) => total + after[field] - before[field], 0)
  const tokens = spans.reduce((total, span) => total + span.tokens, 0)
  const seconds = spans.reduce((total, span) => total + span.seconds, 0)
  const hits = sum('expertHits')
  const misses = sum('expertMisses')
  const prefetchReads = sum('prefetchReads')
  const bytesRead = sum('bytesRead')
  const busy = spans.reduce((t, { before, after }) => t + after.readBusySeconds - before.readBusySeconds, 0)
  const systemBytes = spans.reduce((total, span) => total + span.systemBytes, 0)
  return {
    tokens,
    seconds,
    hits,
    misses,
    hitRate: hits / (hits + misses),
    prefetchReads,
    prefetchHits: sum('prefetchHits'),
    prefetchWastedBytes: sum('prefetchWastedBytes'),
    bytesRead,
    bytesPerToken: bytesRead / tokens,
    bytesPerSecond: bytesRead / seconds,
    bytesPerBusySecond: busy > 0 ? bytesRead / busy : null,
    systemBytesRead: Number.isNaN(systemBytes) ? null : systemBytes,
    stallMsPerToken: (sum('stallSeconds') / tokens) * 1000,
    meanReadMs: (sum('readSeconds') / (misses + prefetchReads)) * 1000,
  }
}

function tiersOf(spans: readonly Span[]): TierStats | null {
  const last = spans.at(-1)?.after.tiers
  if (!last) return null
  const sum = (read: (tiers: TierStats) => number) =>
    spans.reduce((all, { before, after }) => {
      return before.tiers && after.tiers ? all + read(after.tiers) - read(before.tiers) : all
    }, 0)
  return {
    gpu: { ...last.gpu, hits: sum(({ gpu }) => gpu.hits) },
    memory: { ...last.memory, hits: sum(({ memory }) => memory.hits) },
    disk: { hits: sum(({ disk }) => disk.hits) },
    computedOnGpu: sum(tiers => tiers.computedOnGpu),
    computedOnCpu: sum(tiers => tiers.computedOnCpu),
    promotions: sum(tiers => tiers.promotions),
    uploads: sum(tiers => tiers.uploads),
    refills: sum(tiers => tiers.refills),
  }
}

/** Bytes that this process has made the disk read, read-ahead included: Linux counts them. */
function systemBytesRead(): number {
  try {
    return Number(/^read_bytes: (\d+)/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1] ?? Number.NaN)
  } catch {
    return Number.NaN
  }
}

function phasesOf(spans: readonly Span[]): Record<string, number> {
  const sums: Record<string, number> = {}
  for (const { before, after } of spans) {
    for (const [name, value] of Object.entries(after.phaseSeconds)) {
      sums[name] = (sums[name] ?? 0) + value - (before.phaseSeconds[name] ?? 0)
    }
  }
  return sums
}

// Drops files from the system's page cache, so that a benchmark begins cold. Node has no call for it; GNU dd has (it asks
// the kernel with posix_fadvise), and needs no privileges. Elsewhere the caller is told that it could not be done.

/** True where every file of the folder was dropped. */
export async function dropFromPageCache(folder: string): Promise<boolean> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const run = promisify(execFile)
  try {
    for (const entry of entries) {
      if (!entry.isFile() || !entry.name.endsWith('.bin')) continue
      const file = join(entry.parentPath, entry.name)
      await run('dd', [`if=${file}`, 'iflag=nocache', 'count=0', 'status=none'])
    }
    return true
  } catch {
    return false
  }
}

// Several sequences that decode at once: each asks for its next token as soon as it has the last, as users of a server
// do, and the scheduler makes one step of those that are ready together, and one of their guesses where the model makes some. Prompts are
// evaluated before the clock starts.

/** Tokens are each sequence's. */
interface TogetherOptions extends DecodeStreamOptions {
  readonly sequences: number
  readonly promptTokens: number
}

/** Tokens per second of all sequences together. `firstStream`: which of the source's streams the first one takes. */
async function runTogether(
  model: EngineModel,
  source: TokenSource,
  firstStream: number,
  options: TogetherOptions,
): Promise<number> {
  const { sequences, promptTokens, decodeTokens, signal } = options
  const { drafts } = model
  const contexts = Array.from({ length: sequences }, () => model.createContext({ maxCheckpoints: 0 }))
  try {
    const starts = await Promise.all(
      contexts.map((context, i) => context.evaluate(source.prompt(firstStream + i, promptTokens), { signal })),
    )
    drafts?.answerBegins()
    const startedAt = performance.now()
    await Promise.all(
      contexts.map((context, i) => decodeStream(context, drafts, source, firstStream + i, starts[i], options)),
    )
    return (sequences * decodeTokens * 1000) / (performance.now() - startedAt)
  } finally {
    await Promise.all(contexts.map(context => context.close()))
  }
}
