// The oracle: every step in plain TypeScript over float32 arrays, on the caller's thread. It is the fallback where nothing
// else runs, and what the other backends are tested against. Experts come from the packed files on demand.
import { ClosedError, NonFiniteError } from '../../errors.js'
import { ExpertStore } from '../../experts/expertStore.js'
import type { ModelConfig } from '../../model/config.js'
import { areFinite } from '../../model/floats.js'
import type { ExpertLayout } from '../../model/tensors.js'
import type { PackedModel } from '../../storage/packedModel.js'
import type {
  Backend,
  BackendOptions,
  LayerProbe,
  ProbeRequest,
  ProbeResult,
  SequenceState,
  StepOptions,
  StepOutput,
  StepRun,
} from '../backend.js'
import { Breather } from '../breather.js'
import { type ModelStats, NO_EXPERT_STATS } from '../stats.js'
import { Turns } from '../turns.js'
import { embed } from './embed.js'
import type { ExpertWeights } from './expert.js'
import { forwardLayer, type LayerResult } from './forwardLayer.js'
import { loadModel, type ModelWeights } from './loadModel.js'
import { matVec } from './matVec.js'
import { planReferenceExperts } from './planExperts.js'
import { rmsNorm } from './rmsNorm.js'
import { KvMemory, type LinearState, ReferenceSequence } from './sequence.js'
import { sliceMatrix, sliceVector } from './weights.js'

const CHUNK_TOKENS = 64

export async function openReferenceBackend(packed: PackedModel, options: BackendOptions): Promise<Backend> {
  const slots = await planReferenceExperts(packed, options)
  const weights = await loadModel(packed, options)
  return new ReferenceBackend(packed, weights, options.expertsPerToken, slots)
}

/** Some tokens of one sequence inside a step. */
interface ActiveRun {
  readonly sequence: ReferenceSequence
  readonly row: number
  readonly tokens: number
  readonly next: (LinearState | null)[] // [layers], filled layer by layer
}

class ReferenceBackend implements Backend {
  readonly failure = null // there is nothing that could die
  readonly name = 'reference'
  readonly config: ModelConfig
  readonly description: string
  readonly chunkTokens = CHUNK_TOKENS
  private readonly memory: KvMemory
  private readonly store: ExpertStore<ExpertWeights> | null // null: a dense model
  private readonly breather = new Breather()
  private readonly seconds: Record<string, number> = { mixer: 0, head: 0 }
  private readonly counts = { promptTokens: 0, decodeTokens: 0, steps: 0 }
  private readonly turns = new Turns()
  private phaseStart = 0
  private closed = false

  constructor(
    private readonly packed: PackedModel,
    private readonly weights: ModelWeights,
    private readonly expertsPerToken: number,
    slots: number,
  ) {
    this.config = packed.config
    this.memory = new KvMemory(packed.config)
    const { layouts } = packed.experts
    const { moeLayers, numExperts: experts } = packed.config
    const shape = { layers: moeLayers.length, experts, slots }
    const decode = (record: Uint8Array, place: number): ExpertWeights => decodeExpert(record, layouts[place])
    this.store = shape.layers === 0 ? null : new ExpertStore(packed.experts, shape, decode)
    this.description = 'reference, plain TypeScript on one thread'
  }

  createSequence(): SequenceState {
    return new ReferenceSequence(this.config, this.memory)
  }

  step(runs: readonly StepRun[], options: StepOptions = {}): Promise<StepOutput[]> {
    return this.inTurn(() => this.evaluate(runs, options))
  }

  probe(sequence: SequenceState, request: ProbeRequest): Promise<ProbeResult> {
    return this.inTurn(() => this.evaluateProbe(sequence, request))
  }

  private async evaluate(runs: readonly StepRun[], options: StepOptions): Promise<StepOutput[]> {
    this.store?.tick()
    const { numLayers, moeLayers, hiddenSize, vocabSize } = this.config
    const tokens = runs.flatMap(run => run.tokens)
    const k = this.expertsPerToken
    const routing = runs.map(run =>
      options.routing ? new Uint16Array(moeLayers.length * run.tokens.length * k) : null,
    )
    const active = this.reserve(runs.map(run => ({ sequence: run.sequence, tokens: run.tokens.length })))
    try {
      let hidden = embed(this.weights.embed, tokens) // [tokens, hidden]
      for (let layer = 0; layer < numLayers; layer++) {
        const { probe } = await this.forward(layer, hidden, active, options.signal)
        hidden = probe.out
        const place = moeLayers.indexOf(layer)
        if (place < 0) continue
        active.forEach((run, i) => {
          const picks = probe.routerIndices.subarray(run.row * k, (run.row + run.tokens) * k)
          routing[i]?.set(picks, place * run.tokens * k)
        })
      }
      if (!areFinite(hidden)) throw new NonFiniteError()
      this.phaseStart = performance.now()
      const outputs: StepOutput[] = []
      for (const [i, run] of active.entries()) {
        const { output } = runs[i]
        let logits: Float32Array | null = null
        if (output !== 'none') {
          const first = output === 'all' ? run.row : run.row + run.tokens - 1
          logits = this.head(hidden.subarray(first * hiddenSize, (run.row + run.tokens) * hiddenSize)).logits
          if (!areFinite(logits)) throw new NonFiniteError()
        }
        const last = logits && argmax(logits.subarray(logits.length - vocabSize))
        outputs.push({ logits: output === 'argmax' ? null : logits, argmax: last, routing: routing[i] })
        await this.endPhase('head', options.signal)
      }
      for (const run of active) run.sequence.commit(run.tokens, run.next)
      this.count(runs)
      return outputs
    } catch (error) {
      for (const { sequence } of active) sequence.table.trim(sequence.length)
      throw error
    }
  }

  private async evaluateProbe(sequence: SequenceState, request: ProbeRequest): Promise<ProbeResult> {
    const { hiddenSize, numLayers } = this.config
    const tokens = 'tokens' in request ? request.tokens.length : request.hidden.length / hiddenSize
    const active = this.reserve([{ sequence, tokens }])
    const layers: LayerProbe[] = []
    try {
      if ('layer' in request) {
        const { probe } = await this.forward(request.layer, request.hidden, active)
        layers.push({ layer: request.layer, ...probe })
        return { embed: null, layers, finalNorm: null, logits: null }
      }
      const embedded = embed(this.weights.embed, request.tokens)
      let hidden = embedded
      for (let layer = 0; layer < (request.end ?? numLayers); layer++) {
        const { probe } = await this.forward(layer, hidden, active)
        hidden = probe.out
        if (!request.layers || request.layers.includes(layer)) layers.push({ layer, ...probe })
      }
      const head = request.end === undefined ? this.head(hidden) : { finalNorm: null, logits: null }
      return { embed: embedded, layers, ...head }
    } finally {
      for (const { sequence: probed } of active) probed.table.trim(probed.length)
    }
  }

  stats(): ModelStats {
    const experts = this.expertStats()
    const { promptTokens, decodeTokens, steps } = this.counts
    const phases = Object.values(this.seconds).reduce((a, b) => a + b, 0)
    return {
      tokens: promptTokens + decodeTokens,
      promptTokens,
      decodeTokens,
      steps,
      ...experts,
      computeSeconds: Math.max(0, phases - experts.stallSeconds),
      phaseSeconds: { ...this.seconds },
      residentBytes: this.packed.weights.size,
      tiers: null,
    }
  }

  private expertStats(): typeof NO_EXPERT_STATS {
    if (this.store === null) return NO_EXPERT_STATS
    const { stats, reads } = this.store
    return {
      ...stats,
      bytesRead: reads.bytes,
      readSeconds: reads.seconds,
      readBusySeconds: reads.busySeconds,
      readLatencyMs: reads.latency,
      expertMemory: stats.expertSlots * this.packed.experts.layout.expertSize,
    }
  }

  async loaded(): Promise<void> {}

  forgetExperts(): void {
    this.store?.forget()
  }

  residency(): Uint8Array {
    return this.store?.residency() ?? new Uint8Array(0)
  }

  async close(): Promise<void> {
    this.closed = true
    await this.store?.close()
    await this.turns.ended()
  }

  /** The store serves one layer of one step at a time. */
  private inTurn<T>(work: () => Promise<T>): Promise<T> {
    return this.turns.take(() => {
      if (this.closed) throw new ClosedError('model')
      return work()
    })
  }

  /** Makes room for the tokens' K/V rows in every sequence, or in none. */
  private reserve(runs: readonly { sequence: SequenceState; tokens: number }[]): ActiveRun[] {
    const active: ActiveRun[] = []
    let row = 0
    try {
      for (const { sequence, tokens } of runs) {
        const own = sequence as ReferenceSequence
        active.push({ sequence: own, row, tokens, next: [] })
        own.table.reserve(own.length, tokens)
        row += tokens
      }
    } catch (error) {
      for (const { sequence } of active) sequence.table.trim(sequence.length)
      throw error
    }
    return active
  }

  private async forward(layer: number, hidden: Float32Array, runs: readonly ActiveRun[], signal?: AbortSignal) {
    signal?.throwIfAborted()
    this.phaseStart = performance.now()
    const weights = this.weights.layers[layer]
    const layerRuns = runs.map(({ sequence, row, tokens }) => ({
      row,
      tokens,
      position: sequence.length,
      pages: weights.mixer.kind === 'full_attention' ? this.memory.layerPages(sequence.table, layer) : null,
      linear: sequence.linear[layer],
    }))
    const result: LayerResult = await forwardLayer(weights, hidden, layerRuns, {
      config: this.config,
      expertsPerToken: this.expertsPerToken,
      takeExperts: wanted => this.store!.take(this.config.moeLayers.indexOf(layer), wanted, signal),
      phase: name => this.endPhase(name, signal),
    })
    runs.forEach((run, i) => {
      run.next[layer] = result.linear[i] ?? null
    })
    return result
  }

  /** hidden [rows, hidden] */
  private head(hidden: Float32Array): { finalNorm: Float32Array; logits: Float32Array } {
    const finalNorm = rmsNorm(hidden, this.weights.norm, this.config.rmsNormEps)
    return { finalNorm, logits: matVec(this.weights.lmHead, finalNorm) }
  }

  private async endPhase(name: string, signal?: AbortSignal) {
    this.seconds[name] = (this.seconds[name] ?? 0) + (performance.now() - this.phaseStart) / 1000
    await this.breather.pause()
    signal?.throwIfAborted()
    this.phaseStart = performance.now()
  }

  private count(runs: readonly StepRun[]) {
    this.counts.steps++
    for (const { phase, tokens } of runs) {
      if (phase === 'prompt') this.counts.promptTokens += tokens.length
      else this.counts.decodeTokens++
    }
  }
}

/** The index of the largest value; the lowest one among equals. */
function argmax(values: Float32Array): number {
  let best = 0
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i
  return best
}

function decodeExpert(record: Uint8Array, layout: ExpertLayout): ExpertWeights {
  return {
    gate: sliceMatrix(layout.gate, record),
    up: sliceMatrix(layout.up, record),
    down: sliceMatrix(layout.down, record),
    gateBias: layout.gateBias && sliceVector(layout.gateBias, record),
    upBias: layout.upBias && sliceVector(layout.upBias, record),
    downBias: layout.downBias && sliceVector(layout.downBias, record),
  }
}
