// The webgpu backend: the same code in Node (Dawn) and in browsers. Owns the device, the resident weights, the expert
// slots and the sequences' state; a step plans runs, lets a pass evaluate them and commits at the very end.
import { ClosedError, type DeviceLostError, MoefluxError, NonFiniteError } from '../../errors.js'
import { addReads } from '../../experts/readCounters.js'
import type { ModelConfig } from '../../model/config.js'
import { areFinite } from '../../model/floats.js'
import type { PackedModel } from '../../storage/packedModel.js'
import type {
  Backend,
  BackendOptions,
  ProbeRequest,
  ProbeResult,
  SequenceState,
  StepOptions,
  StepOutput,
  StepRun,
} from '../backend.js'
import { nextTurn } from '../breather.js'
import type { GpuPlan } from '../gpuPlan.js'
import { joinProbes } from '../joinProbes.js'
import type { ModelStats } from '../stats.js'
import { Turns } from '../turns.js'
import { NOT_FINITE } from './argmax.js'
import { PAGE_TOKENS } from './attentionShape.js'
import type { DecodePass } from './decodePass.js'
import type { GpuDevice } from './gpuDevice.js'
import { GpuSequence, type SequenceHome } from './gpuSequence.js'
import type { Head } from './head.js'
import type { HostTier } from './hostTier.js'
import type { KvPool } from './kvPool.js'
import type { StepSlots } from './noExperts.js'
import { probeLayers } from './probe.js'
import type { PromptPass } from './promptPass.js'
import type { KernelTime, Profiler } from './recorder.js'
import type { StatePool } from './statePool.js'
import { type PlannedRun, StepInfo } from './stepInfo.js'
import { streamerStats, tierStats } from './tierStats.js'
import { MAX_DECODE_BATCH, type Workspace } from './workspace.js'

/** What a backend is made of; see openWebgpuBackend.ts. */
export interface BackendParts {
  readonly plan: GpuPlan
  readonly states: StatePool
  readonly kv: KvPool
  readonly space: Workspace
  readonly slots: StepSlots
  readonly tier: HostTier | null
  readonly prompt: PromptPass
  readonly decode: DecodePass
  readonly head: Head
  readonly profiler: Profiler | null
  readonly chunkTokens: number
  readonly filling: Promise<void> // of empty slots, behind everything else
}

/** A run with what the step takes for it. */
interface ActiveRun extends PlannedRun {
  readonly sequence: GpuSequence
}

export class WebgpuBackend implements Backend, SequenceHome {
  readonly name = 'webgpu'
  readonly device: GPUDevice
  readonly config: ModelConfig
  readonly description: string
  readonly chunkTokens: number
  readonly plan: GpuPlan
  readonly states: StatePool
  readonly kv: KvPool
  readonly #opened: GpuDevice
  readonly #packed: PackedModel
  readonly #space: Workspace
  readonly #slots: StepSlots
  readonly #tier: HostTier | null // the experts that the GPU has no room for
  readonly #info: StepInfo
  readonly #prompt: PromptPass
  readonly #decode: DecodePass
  readonly #head: Head
  readonly #profiler: Profiler | null
  readonly #counts = { promptTokens: 0, decodeTokens: 0, steps: 0, seconds: 0 }
  readonly #turns = new Turns()
  readonly #filling: Promise<void>
  #closed = false

  constructor(opened: GpuDevice, packed: PackedModel, options: BackendOptions, parts: BackendParts) {
    this.#opened = opened
    this.#packed = packed
    this.device = opened.device
    this.config = packed.config
    this.chunkTokens = parts.chunkTokens
    this.plan = parts.plan
    this.states = parts.states
    this.kv = parts.kv
    this.#space = parts.space
    this.#slots = parts.slots
    this.#tier = parts.tier
    this.#prompt = parts.prompt
    this.#decode = parts.decode
    this.#head = parts.head
    this.#profiler = parts.profiler
    this.#filling = parts.filling
    this.#info = new StepInfo(opened.device, packed.config, parts.space, parts.kv)
    const { description } = opened
    const paths = [opened.subgroups ? 'subgroups' : 'portable', opened.packedDot ? 'packed dot' : 'unpacked']
    if (opened.checks) paths.push('checked')
    this.description = `webgpu on ${description.name}, ${paths.join(', ')}, ${options.precision}`
  }

  createSequence(): SequenceState {
    return new GpuSequence(this)
  }

  forgetPredictions(): void {}

  step(runs: readonly StepRun[], options: StepOptions = {}): Promise<StepOutput[]> {
    return this.inTurn(() => this.#step(runs, options))
  }

  probe(sequence: SequenceState, request: ProbeRequest): Promise<ProbeResult> {
    return this.inTurn(() => this.#probe(sequence, request))
  }

  /** One at a time: workspace, page table and slots are one. What goes wrong because the device is gone is told as that. */
  inTurn<T>(work: () => Promise<T>): Promise<T> {
    return this.#turns.take(async () => {
      this.#check()
      try {
        return await work()
      } catch (error) {
        throw await this.#explain(error)
      }
    })
  }

  async #explain(error: unknown): Promise<unknown> {
    if (this.#closed) return new ClosedError('model')
    // A command that failed with the device may be heard of before the device's end is.
    if (!(error instanceof MoefluxError)) await nextTurn()
    try {
      this.#opened.check()
    } catch (lost) {
      return lost
    }
    return error
  }

  async #step(runs: readonly StepRun[], options: StepOptions): Promise<StepOutput[]> {
    options.signal?.throwIfAborted()
    const began = performance.now()
    const active = await this.#plan(runs.map(({ sequence, tokens }) => ({ sequence: sequence as GpuSequence, tokens })))
    try {
      const outputs = await this.#evaluate(runs, active, options)
      for (const run of active) run.sequence.commit(run.tokens.length, run.stateOut)
      this.#count(runs, performance.now() - began)
      return outputs
    } catch (error) {
      this.#release(active)
      throw error
    }
  }

  async #probe(sequence: SequenceState, request: ProbeRequest): Promise<ProbeResult> {
    const { hiddenSize } = this.config
    const own = sequence as GpuSequence
    const count = 'tokens' in request ? request.tokens.length : request.hidden.length / hiddenSize
    const results: ProbeResult[] = []
    // Chunk after chunk, each from the state that the one before has written; nothing is committed.
    let stateIn = own.state
    const taken: number[] = []
    try {
      for (let start = 0; start < count; start += this.chunkTokens) {
        const end = Math.min(count, start + this.chunkTokens)
        const tokens = 'tokens' in request ? request.tokens.slice(start, end) : new Array<number>(end - start).fill(0)
        await this.states.reserve(1)
        const stateOut = this.states.take()
        taken.push(stateOut)
        await this.#reservePages([{ sequence: own, tokens: end }])
        own.table.reserve(own.length, end)
        const run = { tokens, position: own.length + start, pages: own.table.pages, stateIn, stateOut }
        this.#info.write([run])
        const rows =
          'hidden' in request
            ? { layer: request.layer, hidden: request.hidden.subarray(start * hiddenSize, end * hiddenSize) }
            : { tokens, layers: request.layers, end: request.end }
        results.push(await probeLayers(this.device, this.config, this.#space, this.#prompt, this.#head, rows))
        stateIn = stateOut
      }
    } finally {
      for (const slot of taken) this.states.release(slot)
      own.table.trim(own.length)
    }
    return joinProbes(results)
  }

  stats(): ModelStats {
    const { promptTokens, decodeTokens, steps, seconds } = this.#counts
    const tiers = this.#tier && tierStats(this.#tier, this.#slots.bytes)
    const reads = this.#tier === null ? this.#slots.reads : addReads(this.#slots.reads, this.#tier.reads)
    const stats =
      tiers === null || this.#tier === null ? this.#slots.stats : streamerStats(this.#slots.stats, this.#tier)
    const { stallSeconds } = stats
    return {
      tokens: promptTokens + decodeTokens,
      promptTokens,
      decodeTokens,
      steps,
      ...stats,
      bytesRead: reads.bytes,
      readSeconds: reads.seconds,
      readBusySeconds: reads.busySeconds,
      readLatencyMs: [...reads.latency],
      computeSeconds: Math.max(0, seconds - stallSeconds),
      phaseSeconds: this.#phaseSeconds(Math.max(0, seconds - stallSeconds)),
      residentBytes: this.#packed.weights.size,
      expertMemory: this.#slots.bytes + (this.#tier?.bytes ?? 0),
      tiers,
    }
  }

  loaded(): Promise<void> {
    return this.#filling
  }

  forgetExperts(): void {
    this.#slots.forget()
  }

  residency(): Uint8Array {
    const onGpu = this.#slots.residency()
    const below = this.#tier?.tiers.memory.resident
    return below === undefined ? onGpu : onGpu.map((isThere, i) => isThere | below[i])
  }

  /** By kernel where they are measured, else all in one. */
  #phaseSeconds(total: number): Record<string, number> {
    const times = this.profile()
    const helped = this.#tier === null ? {} : this.#decode.helpSeconds
    const besides = Object.values(helped).reduce((sum, seconds) => sum + seconds, 0)
    if (times.length === 0) return { gpu: Math.max(0, total - besides), ...helped }
    return { ...Object.fromEntries(times.map(({ label, ms }) => [label, ms / 1000])), ...helped }
  }

  /** Brings every expert into GPU memory, where the budget holds them all. */
  async loadAllExperts(onProgress?: (loaded: number, total: number) => void): Promise<void> {
    const { moeLayers, numExperts } = this.config
    const total = moeLayers.length * numExperts
    if (this.#slots.holdsAll) await this.#slots.fill(loaded => onProgress?.(loaded, total))
  }

  get failure(): DeviceLostError | null {
    return this.#opened.failure ?? this.#tier?.failure ?? null
  }

  resetProfile(): void {
    this.#profiler?.reset()
  }

  /** GPU time by kernel since the backend was opened with `timing`, longest first. */
  profile(): KernelTime[] {
    return this.#profiler?.times() ?? []
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#slots.close()
    await this.#turns.ended()
    this.#opened.close()
  }

  /** Decodes in batches, then all prompts together. Nothing is committed here. */
  async #evaluate(runs: readonly StepRun[], active: readonly ActiveRun[], options: StepOptions): Promise<StepOutput[]> {
    const outputs = new Array<StepOutput>(runs.length)
    const decodes = [...runs.keys()].filter(i => runs[i].phase === 'decode' && runs[i].tokens.length === 1)
    const prompts = [...runs.keys()].filter(i => !decodes.includes(i))
    this.#slots.tick()
    for (let first = 0; first < decodes.length; first += this.#decodeBatch) {
      const batch = decodes.slice(first, first + this.#decodeBatch)
      const made = await this.#evaluateDecodes(
        batch.map(i => runs[i]),
        batch.map(i => active[i]),
        options,
      )
      for (const [i, output] of made.entries()) outputs[batch[i]] = output
    }
    if (prompts.length > 0) {
      const made = await this.#evaluatePrompts(
        prompts.map(i => runs[i]),
        prompts.map(i => active[i]),
        options,
      )
      for (const [i, output] of made.entries()) outputs[prompts[i]] = output
    }
    this.#opened.check()
    return outputs
  }

  /** Tokens that decode together: all of their experts have room at once. */
  get #decodeBatch(): number {
    const together = Math.floor(this.#slots.leastSlots / this.#space.shape.k)
    return Math.max(1, Math.min(MAX_DECODE_BATCH, this.#head.rows, together))
  }

  async #evaluateDecodes(runs: readonly StepRun[], active: readonly ActiveRun[], options: StepOptions) {
    this.#info.write(active)
    // The head is computed for whoever does not want it too: it tells whether all is finite.
    const { winners, routing } = await this.#decode.run(active.length, options.signal)
    if (winners.includes(NOT_FINITE)) throw new NonFiniteError()
    const outputs: StepOutput[] = []
    for (const [i, { output }] of runs.entries()) {
      outputs.push({
        logits: output === 'last' || output === 'all' ? await this.#head.readRow(i) : null,
        argmax: output === 'none' ? null : winners[i],
        kept: 1,
        routing: options.routing ? this.#routingOf(routing, MAX_DECODE_BATCH, i, 1) : null,
      })
    }
    return outputs
  }

  async #evaluatePrompts(runs: readonly StepRun[], active: readonly ActiveRun[], options: StepOptions) {
    this.#info.write(active)
    const size = { tokens: active.reduce((sum, run) => sum + run.tokens.length, 0), runs: active.length }
    const recorder = this.#prompt.recorder()
    this.#prompt.embed(recorder, size)
    const last = () => this.#head.recordNorm(recorder, size.tokens)
    await this.#prompt.run(recorder, size, { signal: options.signal, last })
    if (!(await this.#head.areFinite(size.tokens))) throw new NonFiniteError()
    options.signal?.throwIfAborted()
    const routing = options.routing ? await this.#prompt.readRouting(size.tokens) : null
    const outputs: StepOutput[] = []
    let row = 0
    for (const [i, { output }] of runs.entries()) {
      const count = active[i].tokens.length
      const end = row + count - 1
      const rows = output === 'all' ? Array.from({ length: count }, (_, t) => row + t) : [end]
      const logits = output === 'last' || output === 'all' ? await this.#head.readLogits(rows) : null
      const argmax = output === 'none' ? null : (await this.#head.readArgmax([end]))[0]
      if (argmax === NOT_FINITE || (output === 'all' && logits && !areFinite(logits))) throw new NonFiniteError()
      const picks = routing && this.#routingOf(routing, size.tokens, row, count)
      outputs.push({ logits, argmax, kept: count, routing: picks })
      options.signal?.throwIfAborted()
      row += count
    }
    return outputs
  }

  /** One run's share of [layers, tokens, K]. */
  #routingOf(all: ArrayLike<number>, tokens: number, first: number, count: number): Uint16Array {
    const { k } = this.#space.shape
    const layers = this.config.moeLayers.length
    const own = new Uint16Array(layers * count * k)
    for (let layer = 0; layer < layers; layer++) {
      for (let i = 0; i < count * k; i++) own[layer * count * k + i] = all[(layer * tokens + first) * k + i]
    }
    return own
  }

  /** Takes pages and state slots for all runs, or nothing. */
  async #plan(runs: readonly { sequence: GpuSequence; tokens: readonly number[] }[]): Promise<ActiveRun[]> {
    await this.states.reserve(runs.length)
    await this.#reservePages(runs.map(({ sequence, tokens }) => ({ sequence, tokens: tokens.length })))
    const active: ActiveRun[] = []
    for (const { sequence, tokens } of runs) {
      sequence.table.reserve(sequence.length, tokens.length)
      active.push({
        sequence,
        tokens,
        position: sequence.length,
        pages: [...sequence.table.pages],
        stateIn: sequence.state,
        stateOut: this.states.take(),
      })
    }
    return active
  }

  async #reservePages(runs: readonly { sequence: GpuSequence; tokens: number }[]): Promise<void> {
    let wanted = 0
    let words = 0
    for (const { sequence, tokens } of runs) {
      const pages = Math.ceil((sequence.length + tokens) / PAGE_TOKENS)
      wanted += pages - sequence.table.pages.length + 1 // one more where the last page must be copied
      words += pages
    }
    await this.kv.reserve(Math.max(0, wanted), words)
  }

  #release(active: readonly ActiveRun[]): void {
    for (const { sequence, stateOut } of active) {
      sequence.table.trim(sequence.length)
      this.states.release(stateOut)
    }
  }

  #count(runs: readonly StepRun[], ms: number): void {
    this.#counts.steps++
    this.#counts.seconds += ms / 1000
    for (const { phase, tokens } of runs) {
      if (phase === 'prompt') this.#counts.promptTokens += tokens.length
      else this.#counts.decodeTokens++
    }
  }

  #check(): void {
    if (this.#closed) throw new ClosedError('model')
    this.#opened.check()
    if (this.#tier?.failure) throw this.#tier.failure
  }
}
