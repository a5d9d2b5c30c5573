// The oracle: every step in plain TypeScript over float32 arrays, on the caller's thread. It is the fallback where nothing
// else runs, and what the other backends are tested against. Experts come from the packed files on demand.
import { ClosedError, NonFiniteError } from '../../base/errors.js'
import { Breather } from '../../base/yieldToEventLoop.js'
import { ExpertStore } from '../../experts/expertStore.js'
import { type PackedModel, withoutHead } from '../../files/packed/packedModel.js'
import type { ModelConfig } from '../../model/config.js'
import { areFinite, joinFloats } from '../../model/floats.js'
import type { ExpertLayout } from '../../model/tensors.js'
import { embed } from '../../ops/embed/reference.js'
import { matVec } from '../../ops/matmul/reference.js'
import { sliceMatrix, sliceVector } from '../../ops/matmul/storedWeights.js'
import type { ExpertWeights } from '../../ops/moe/reference.js'
import { rmsNorm } from '../../ops/norm/reference.js'
import type {
  Backend,
  BackendOptions,
  DraftOutput,
  DraftRequest,
  DraftState,
  LayerProbe,
  ProbeRequest,
  ProbeResult,
  SequenceState,
  StepOptions,
  StepOutput,
  StepRun,
} from '../backend.js'
import { Turns } from '../serialQueue.js'
import { type ModelStats, NO_EXPERT_STATS } from '../stats.js'
import { forwardLayer, headInput, type LayerContext, storeHeadRows } from './forward.js'
import { loadModel, type ModelWeights } from './model.js'
import { planReferenceExperts } from './plan.js'
import { KvMemory, type LinearState, ReferenceSequence } from './sequence.js'

const CHUNK_TOKENS = 64

export async function openReferenceBackend(packed: PackedModel, options: BackendOptions): Promise<Backend> {
  // Rows of a step cost as much as steps here: drafts never pay.
  const model = options.drafts === true ? packed : withoutHead(packed)
  const slots = await planReferenceExperts(model, options)
  const weights = await loadModel(model, options)
  return new ReferenceBackend(model, weights, options.expertsPerToken, slots)
}

/** Some tokens of one sequence inside a step. */
interface ActiveRun {
  readonly sequence: ReferenceSequence
  readonly row: number
  readonly tokens: number
  readonly guesses: boolean
  readonly next: (readonly LinearState[])[] // [layers], filled layer by layer
}

class ReferenceBackend implements Backend {
  readonly failure = null // there is nothing that could die
  readonly name = 'reference'
  readonly config: ModelConfig
  readonly description: string
  readonly chunkTokens = CHUNK_TOKENS
  readonly draft?: Backend['draft']
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
    const { expertLayers, numExperts: experts } = packed.config
    const shape = { layers: expertLayers.length, layerNumbers: expertLayers, experts, slots }
    const decode = (record: Uint8Array, place: number): ExpertWeights => decodeExpert(record, layouts[place])
    this.store = shape.layers === 0 ? null : new ExpertStore(packed.experts, shape, decode)
    if (weights.draftHead !== null) {
      this.draft = (requests, options = {}) => this.inTurn(() => this.guessAll(requests, options))
    }
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
    const routerWeights = routing.map(picks =>
      picks && options.routing === 'weights' ? new Float32Array(picks.length) : undefined,
    )
    const active = this.reserve(
      runs.map(({ sequence, tokens, keep }) => ({ sequence, tokens: tokens.length, guesses: keep !== undefined })),
    )
    try {
      let hidden = embed(this.weights.embed, tokens) // [tokens, hidden]
      for (let layer = 0; layer < numLayers; layer++) {
        const { probe } = await this.forward(layer, hidden, active, options.signal)
        hidden = probe.out
        const place = moeLayers.indexOf(layer)
        if (place < 0) continue
        active.forEach((run, i) => {
          const rows = [run.row * k, (run.row + run.tokens) * k] as const
          const at = place * run.tokens * k
          routing[i]?.set(probe.routerIndices.subarray(...rows), at)
          routerWeights[i]?.set(probe.routerWeights.subarray(...rows), at)
        })
      }
      if (!areFinite(hidden)) throw new NonFiniteError()
      this.phaseStart = performance.now()
      const rows: { logits: Float32Array | null; argmax: Int32Array }[] = []
      for (const [i, run] of active.entries()) {
        const { output } = runs[i]
        let logits: Float32Array | null = null
        if (output !== 'none') {
          const first = output === 'all' || run.guesses ? run.row : run.row + run.tokens - 1
          logits = this.head(hidden.subarray(first * hiddenSize, (run.row + run.tokens) * hiddenSize)).logits
          if (!areFinite(logits)) throw new NonFiniteError()
        }
        rows.push({ logits: output === 'argmax' ? null : logits, argmax: bestOfRows(logits, vocabSize) })
        await this.endPhase('head', options.signal)
      }
      const normed = active.map(({ row, tokens }, i) => {
        const own = hidden.subarray(row * hiddenSize, (row + tokens) * hiddenSize)
        return runs[i].hidden ? rmsNorm(own, this.weights.norm, this.config.rmsNormEps) : undefined
      })
      const drafts = active.map((run, i) => this.extendHead(run, runs[i].tokens, hidden))
      // Nothing can fail from here on.
      const kept = await Promise.all(runs.map(({ keep, tokens }, i) => keep?.(rows[i]) ?? tokens.length))
      active.forEach((run, i) => {
        const linear = run.next.map(states => states[run.guesses ? kept[i] - 1 : 0] ?? null)
        run.sequence.commit(kept[i], linear, drafts[i](kept[i]))
      })
      this.count(runs, kept)
      return rows.map(({ logits, argmax }, i) => {
        const last = argmax[runs[i].keep ? kept[i] - 1 : argmax.length - 1] ?? null
        const inside = { routing: routing[i], routerWeights: routerWeights[i], hidden: normed[i] }
        return { logits, argmax: last, kept: kept[i], ...inside }
      })
    } catch (error) {
      for (const { sequence } of active) sequence.table.trim(sequence.length)
      throw error
    }
  }

  /** Adds the rows of a run's tokens to those of the head; the result says what it knows when so many are kept. */
  private extendHead(
    run: ActiveRun,
    tokens: readonly number[],
    hidden: Float32Array,
  ): (kept: number) => DraftState | null {
    if (this.weights.draftHead === null) return () => null
    const { hiddenSize, numLayers, rmsNormEps } = this.config
    const { sequence, row } = run
    const own = hidden.subarray(row * hiddenSize, (row + tokens.length) * hiddenSize)
    const finalNorm = rmsNorm(own, this.weights.norm, rmsNormEps)
    const { draft, length } = sequence
    const skipped = draft === null ? 1 : 0 // nothing is known of the token before the first
    const known = tokens.slice(skipped)
    const before = draft === null ? finalNorm : joinFloats([draft.hidden, finalNorm])
    if (known.length > 0) {
      const pages = this.memory.layerPages(sequence.table, numLayers)
      const rows = { row: 0, tokens: known.length, position: length + skipped, pages, linear: null }
      storeHeadRows(this.weights, known, before.subarray(0, known.length * hiddenSize), rows, this.config)
    }
    const firstRow = draft?.firstRow ?? length + 1
    return kept => ({ hidden: finalNorm.slice((kept - 1) * hiddenSize, kept * hiddenSize), firstRow })
  }

  private async guessAll(requests: readonly DraftRequest[], { signal }: StepOptions): Promise<DraftOutput[]> {
    const outputs: DraftOutput[] = []
    for (const request of requests) outputs.push({ guesses: await this.guess(request, signal) })
    return outputs
  }

  private async guess({ sequence, token, count, choose }: DraftRequest, signal?: AbortSignal): Promise<number[]> {
    const { draftHead } = this.weights
    const { draft, length, table } = sequence as ReferenceSequence
    if (draftHead === null || draft === null) return []
    const { numLayers, rmsNormEps } = this.config
    const guesses: number[] = []
    let last = { token, hidden: draft.hidden }
    this.reserve([{ sequence, tokens: count }])
    try {
      while (guesses.length < count) {
        signal?.throwIfAborted()
        this.phaseStart = performance.now()
        const input = headInput(this.weights, [last.token], last.hidden, this.config)
        const position = length + guesses.length
        const pages = this.memory.layerPages(table, numLayers)
        const run = { row: 0, tokens: 1, position, pages, linear: null, firstRow: draft.firstRow }
        const { probe } = await forwardLayer(draftHead.layer, input, [run], this.layerContext(numLayers, signal))
        const hidden = rmsNorm(probe.out, draftHead.norm, rmsNormEps)
        const logits = matVec(this.weights.lmHead, hidden)
        await this.endPhase('head', signal)
        if (!areFinite(logits)) break // whatever it is, it is no guess
        const guess = choose === undefined ? argmax(logits) : await choose(logits, guesses.length)
        if (guess === null) break
        guesses.push(guess)
        last = { token: guess, hidden }
      }
      return guesses
    } finally {
      table.trim(length)
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
    const { moeLayers, numExperts } = this.config
    return this.store?.residency().slice(0, moeLayers.length * numExperts) ?? new Uint8Array(0)
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
  private reserve(runs: readonly { sequence: SequenceState; tokens: number; guesses?: boolean }[]): ActiveRun[] {
    const active: ActiveRun[] = []
    let row = 0
    try {
      for (const { sequence, tokens, guesses = false } of runs) {
        const own = sequence as ReferenceSequence
        active.push({ sequence: own, row, tokens, guesses, next: [] })
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
    const layerRuns = runs.map(({ sequence, row, tokens, guesses }) => ({
      guesses,
      row,
      tokens,
      position: sequence.length,
      pages: weights.mixer.kind === 'full_attention' ? this.memory.layerPages(sequence.table, layer) : null,
      linear: sequence.linear[layer],
    }))
    const result = await forwardLayer(weights, hidden, layerRuns, this.layerContext(layer, signal))
    runs.forEach((run, i) => {
      run.next[layer] = result.linear[i] ?? []
    })
    return result
  }

  private layerContext(layer: number, signal?: AbortSignal): LayerContext {
    return {
      config: this.config,
      expertsPerToken: this.expertsPerToken,
      takeExperts: wanted => this.store!.take(this.config.expertLayers.indexOf(layer), wanted, signal),
      phase: name => this.endPhase(name, signal),
    }
  }

  /** hidden [rows, hidden] */
  private head(hidden: Float32Array): { finalNorm: Float32Array; logits: Float32Array } {
    const finalNorm = rmsNorm(hidden, this.weights.norm, this.config.rmsNormEps)
    return { finalNorm, logits: matVec(this.weights.lmHead, finalNorm) }
  }

  private async endPhase(name: string, signal?: AbortSignal) {
    this.seconds[name] = (this.seconds[name] ?? 0) + (performance.now() - this.phaseStart) / 1000
    await this.breather.maybeYield()
    signal?.throwIfAborted()
    this.phaseStart = performance.now()
  }

  private count(runs: readonly StepRun[], kept: readonly number[]) {
    this.counts.steps++
    runs.forEach(({ phase }, i) => {
      this.counts[phase === 'prompt' ? 'promptTokens' : 'decodeTokens'] += kept[i]
    })
  }
}

/** logits [rows, vocab] -> the best of each row */
function bestOfRows(logits: Float32Array | null, vocabSize: number): Int32Array {
  const rows = (logits?.length ?? 0) / vocabSize
  return Int32Array.from({ length: rows }, (_, row) => argmax(logits!.subarray(row * vocabSize, (row + 1) * vocabSize)))
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
