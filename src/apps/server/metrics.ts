// What /metrics tells, in Prometheus' format: requests, tokens, latencies, and the engine's own counters, which are read
// from the model when they are asked for. A registry per server: two servers in one process do not mix.
import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { ModelStats, SessionEvent, SessionState, Usage } from '../../index.js'
import { latencyBoundMs, type TierStats } from '../../internal.js'
import { CountedHistogram } from './countedHistogram.js'
import { addStoreMetrics } from './storeMetrics.js'

export interface MetricsSources {
  readonly stats: () => ModelStats
  readonly experts: () => number // of the models in memory, wherever they are
  readonly session: () => SessionState
  readonly slots: number // answers that are computed at once
  readonly models: () => { loaded: number; loads: number; unloads: number }
  readonly active: () => number
  readonly bodyBytes: () => number
}

function readTimes({ readLatencyMs: counts, readSeconds: sum }: ModelStats) {
  return [{ counts, sum, bounds: counts.map((_, step) => latencyBoundMs(step) / 1000) }]
}

export class Metrics {
  readonly registry = new Registry()
  private readonly requests: Counter
  private readonly tokens: Counter
  private readonly guesses: Counter
  private readonly firstToken: Histogram
  private readonly rate: Histogram

  constructor(sources: MetricsSources) {
    const registers = [this.registry]
    this.requests = new Counter({
      name: 'moeflux_requests_total',
      help: 'Requests answered',
      labelNames: ['path', 'status'],
      registers,
    })
    this.guesses = new Counter({
      name: 'moeflux_guesses_total',
      help: 'Tokens guessed ahead, by whether they came true',
      labelNames: ['outcome'],
      registers,
    })
    this.tokens = new Counter({
      name: 'moeflux_tokens_total',
      help: 'Tokens by kind: cached and new of prompts, answered',
      labelNames: ['kind'],
      registers,
    })
    this.firstToken = new Histogram({
      name: 'moeflux_first_token_seconds',
      help: 'From the request to the first piece of the answer',
      buckets: [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100],
      registers,
    })
    this.rate = new Histogram({
      name: 'moeflux_answer_tokens_per_second',
      help: 'Speed of whole answers',
      buckets: [1, 3, 10, 30, 100, 300, 1000],
      registers,
    })
    const gauge = (name: string, help: string, read: () => number) =>
      new Gauge({
        name,
        help,
        registers,
        collect() {
          this.set(read())
        },
      })
    const counter = (name: string, help: string, read: () => number) =>
      new Counter({
        name,
        help,
        registers,
        collect() {
          this.reset()
          this.inc(read())
        },
      })
    gauge('moeflux_requests_active', 'Requests in the house: running or waiting', sources.active)
    gauge('moeflux_body_bytes', 'Room that the bodies of requests take, small ones left out', sources.bodyBytes)
    gauge('moeflux_requests_running', 'Requests that are being answered', () => sources.session().running)
    gauge('moeflux_requests_waiting', 'Requests in the house that are not being answered yet', () =>
      Math.max(0, sources.active() - sources.session().running),
    )
    gauge('moeflux_slots', 'Requests that can be answered at once', () => sources.slots)
    gauge('moeflux_kv_usage_ratio', 'Memory of kept states as a share of what there is for them', () => {
      const { bytes, byteBudget } = sources.session()
      return byteBudget > 0 ? bytes / byteBudget : 0
    })
    gauge('moeflux_models_loaded', 'Models in memory', () => sources.models().loaded)
    counter('moeflux_model_loads_total', 'Models that were loaded', () => sources.models().loads)
    counter('moeflux_model_unloads_total', 'Models that were unloaded', () => sources.models().unloads)
    addStoreMetrics(this.registry, sources.session)
    gauge('moeflux_sequences_active', 'Sequences being evaluated', () => sources.session().running)
    gauge('moeflux_sequences_waiting', 'Requests that wait for a sequence', () => sources.session().waiting)
    gauge('process_resident_memory_bytes', 'Memory of the process', () => process.memoryUsage.rss())
    gauge('moeflux_prefix_states', 'States kept for reuse', () => sources.session().states)
    gauge('moeflux_prefix_bytes', 'Memory of kept states', () => sources.session().bytes)
    const engine: [string, string, (stats: ModelStats) => number][] = [
      ['expert_hits_total', 'Experts that were in memory when routed to', stats => stats.expertHits],
      ['expert_misses_total', 'Experts that were read on demand', stats => stats.expertMisses],
      ['prefetch_reads_total', 'Experts that were read ahead', stats => stats.prefetchReads],
      ['prefetch_hits_total', 'Hits that a prefetch brought', stats => stats.prefetchHits],
      ['prefetch_wasted_bytes_total', 'Bytes prefetched in vain', stats => stats.prefetchWastedBytes],
      ['expert_bytes_read_total', 'Bytes of experts read', stats => stats.bytesRead],
      ['stall_seconds_total', 'Time that computing waited for reads', stats => stats.stallSeconds],
      ['compute_seconds_total', 'Time spent computing', stats => stats.computeSeconds],
      ['evaluated_tokens_total', 'Tokens evaluated, prompt and answer', stats => stats.tokens],
      ['expert_slots', 'Experts that fit into memory', stats => stats.expertSlots],
      ['expert_slots_used', 'Experts in memory', stats => stats.expertSlotsUsed],
    ]
    for (const [name, help, read] of engine) {
      if (name.endsWith('_total')) counter(`moeflux_${name}`, help, () => read(sources.stats()))
      else gauge(`moeflux_${name}`, help, () => read(sources.stats()))
    }
    gauge('moeflux_experts', 'Experts of the models in memory, wherever they are', sources.experts)
    this.addTiers(sources.stats)
    const reads = { name: 'moeflux_expert_read_seconds', help: 'Time that a read of an expert took', registers }
    new CountedHistogram(reads, () => readTimes(sources.stats()))
  }

  /** Values only where experts are on a GPU and in memory beside it. */
  private addTiers(read: () => ModelStats): void {
    const registers = [this.registry]
    const values: [string, string, string, (tiers: TierStats) => Record<string, number>][] = [
      [
        'tier_slots',
        'Experts that fit, by where',
        'tier',
        ({ gpu, memory }) => ({ gpu: gpu.slots, memory: memory.slots }),
      ],
      [
        'tier_slots_used',
        'Experts that are there',
        'tier',
        ({ gpu, memory }) => ({ gpu: gpu.used, memory: memory.used }),
      ],
      [
        'tier_hits_total',
        'Experts that layers wanted, by where they were found',
        'tier',
        ({ gpu, memory, disk }) => ({ gpu: gpu.hits, memory: memory.hits, disk: disk.hits }),
      ],
      [
        'experts_computed_total',
        'Experts that layers wanted, by who computed them',
        'by',
        ({ computedOnGpu, computedOnCpu }) => ({ gpu: computedOnGpu, cpu: computedOnCpu }),
      ],
      [
        'expert_moves_total',
        'Experts that went to the GPU for use or for a prompt, and who were read again after they left it',
        'kind',
        ({ promotions, uploads, refills }) => ({ promotion: promotions, upload: uploads, refill: refills }),
      ],
    ]
    for (const [name, help, label, valuesOf] of values) {
      const about = { name: `moeflux_${name}`, help, labelNames: [label], registers }
      const each = (tell: (labels: Record<string, string>, value: number) => void) => {
        const { tiers } = read()
        if (tiers) for (const [key, value] of Object.entries(valuesOf(tiers))) tell({ [label]: key }, value)
      }
      if (name.endsWith('_total')) {
        new Counter({
          ...about,
          collect() {
            this.reset()
            each((labels, value) => this.inc(labels, value))
          },
        })
      } else {
        new Gauge({
          ...about,
          collect() {
            each((labels, value) => this.set(labels, value))
          },
        })
      }
    }
  }

  request(path: string, status: number): void {
    this.requests.inc({ path, status: String(status) })
  }

  /** Passes events through and counts what they tell. */
  async *watch(events: AsyncIterable<SessionEvent>): AsyncGenerator<SessionEvent, void, undefined> {
    const started = performance.now()
    let first = true
    let usage: Usage | null = null
    try {
      for await (const event of events) {
        if (event.type === 'usage') usage = event
        else if (first) {
          first = false
          this.firstToken.observe((performance.now() - started) / 1000)
        }
        yield event
      }
    } finally {
      if (usage !== null) this.count(usage)
    }
  }

  /** Tokens of inputs that became vectors. */
  embedded(tokens: number): void {
    this.tokens.inc({ kind: 'new' }, tokens)
  }

  private count(usage: Usage): void {
    this.tokens.inc({ kind: 'cached' }, usage.cachedTokens)
    this.tokens.inc({ kind: 'new' }, usage.newTokens)
    this.tokens.inc({ kind: 'answer' }, usage.answerTokens)
    if (usage.drafts) {
      this.guesses.inc({ outcome: 'accepted' }, usage.drafts.accepted)
      this.guesses.inc({ outcome: 'rejected' }, usage.drafts.rejected)
    }
    if (usage.answerTokens > 1 && usage.answerSeconds > 0) this.rate.observe(usage.answerTokens / usage.answerSeconds)
  }
}
