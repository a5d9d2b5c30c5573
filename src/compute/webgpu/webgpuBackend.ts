// The webgpu backend: the same code in Node (Dawn) and in browsers. Owns the device, the resident weights, the expert
// slots and the sequences' state; a step plans runs, lets a pass evaluate them and commits at the very end.
import {
  BackendUnavailableError,
  ClosedError,
  type DeviceLostError,
  MemoryPlanError,
  MoefluxError,
  NonFiniteError,
  OutOfMemoryError,
} from '../../errors.js'
import { defaultFillsPerStep, defaultMovesPerStep, ExpertTiers } from '../../experts/expertTiers.js'
import { addReads } from '../../experts/readCounters.js'
import type { ModelConfig } from '../../model/config.js'
import { areFinite } from '../../model/floats.js'
import { layersOfKind } from '../../model/sizes.js'
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
import { allExperts, type GpuPlan, poolRequest } from '../gpuPlan.js'
import { joinProbes } from '../joinProbes.js'
import type { ModelStats } from '../stats.js'
import { chooseWay, type TierWay } from '../tierRates.js'
import { Turns } from '../turns.js'
import type { HostWorkers } from '../wasm/hostWorkers.js'
import { NOT_FINITE } from './argmax.js'
import { PAGE_TOKENS } from './attentionShape.js'
import { DecodePass } from './decodePass.js'
import { type ExpertReader, sourceExpertReader } from './expertReader.js'
import { ExpertSlots } from './expertSlots.js'
import { STAGING_BUFFERS, stagingBytes } from './expertUploads.js'
import { type GpuContext, HARDWARE_TUNING, SOFTWARE_TUNING, type Tuning } from './gpuContext.js'
import { type DeviceOptions, type GpuDevice, openDevice } from './gpuDevice.js'
import { makeChecked } from './gpuMemory.js'
import { gpuModelOf } from './gpuModel.js'
import { CHUNK_TOKENS } from './gpuParts.js'
import { takeRoom } from './gpuRoom.js'
import { GpuSequence, type SequenceHome } from './gpuSequence.js'
import { Head } from './head.js'
import type { HostTier } from './hostTier.js'
import { KernelSet } from './kernel.js'
import { KvPool, plannedPages } from './kvPool.js'
import { measureTiers } from './measureTiers.js'
import { hostSideOf, openHostTier, type TierPlace } from './openHostTier.js'
import { probeLayers } from './probe.js'
import { PromptPass } from './promptPass.js'
import { type KernelTime, Profiler } from './recorder.js'
import { loadResidentWeights } from './residentWeights.js'
import { selfTest } from './selfTest.js'
import { leastSlots, type SlotMove, sharedMoves, slotLayout } from './slotLayout.js'
import { sourceTierPlace } from './sourceTierPlace.js'
import { plannedStates, StatePool } from './statePool.js'
import { type PlannedRun, StepInfo } from './stepInfo.js'
import { streamerStats, tierStats } from './tierStats.js'
import { logitsStride } from './topK.js'
import { createWorkspace, MAX_DECODE_BATCH, type Workspace } from './workspace.js'

export interface WebgpuOptions extends DeviceOptions {
  /** Measure the GPU time of every kernel: slower, and `profile()` then tells. */
  readonly timing?: boolean
  readonly chunkTokens?: number
  readonly tuning?: Partial<Tuning>
  /** For tests: an error in what kernels give to the self-test, by the kind of kernels. */
  readonly selfTestError?: (kernels: 'subgroups' | 'portable') => number
  /** For tests: what to do about experts that are not on the GPU, instead of measuring. */
  readonly way?: (threads: number) => TierWay
  /** For tests: whether the GPU shares the machine's memory, and what to leave of its own. */
  readonly isShared?: boolean
  readonly reserve?: number // bytes
}

/** Attempts to open with ever less. */
const MOST_REFUSALS = 3
const SOFTWARE_CHUNK_TOKENS = 64 // a chunk there takes seconds, and an abort waits for it

export async function openWebgpuBackend(
  packed: PackedModel,
  options: BackendOptions,
  gpuOptions: WebgpuOptions = {},
): Promise<WebgpuBackend> {
  try {
    return await openModestly(packed, options, gpuOptions)
  } catch (error) {
    const isPlain = gpuOptions.subgroups === false && gpuOptions.packedDot === false
    if (!(error instanceof SelfTestError) || isPlain) throw error
    options.onNotice?.(`${error.message}; trying again with portable kernels`)
    return openModestly(packed, options, { ...gpuOptions, subgroups: false, packedDot: false })
  }
}

/** Memory that was there when it was planned with may be gone when it is wanted: then once more, with less. */
async function openModestly(packed: PackedModel, options: BackendOptions, gpuOptions: WebgpuOptions) {
  for (let refusals = 0; ; refusals++) {
    try {
      return await openOnce(packed, options, gpuOptions, refusals)
    } catch (error) {
      if (error instanceof MemoryPlanError && options.automatic) {
        throw new BackendUnavailableError('webgpu', error.message, { cause: error })
      }
      if (!(error instanceof OutOfMemoryError)) throw error
      if (refusals < MOST_REFUSALS) continue
      const why = `the GPU refuses memory that it seemed to have (${error.what}); less gpuMemory or backend wasm helps`
      throw new BackendUnavailableError('webgpu', why, { cause: error })
    }
  }
}

async function openOnce(packed: PackedModel, options: BackendOptions, gpuOptions: WebgpuOptions, refusals: number) {
  const opened = await openDevice(gpuOptions)
  const { device } = opened
  const undo: (() => Promise<void>)[] = []
  // Whatever asks for a buffer and does not look whether it gets one.
  device.pushErrorScope('out-of-memory')
  const opening = WebgpuBackend.open(opened, packed, options, gpuOptions, undo, refusals)
  const failure = await opening.then(
    () => null,
    error => error,
  )
  const refused = await device.popErrorScope().catch(() => null)
  if (failure === null && refused === null) return opening
  if (failure === null) await (await opening).close()
  else for (const close of undo) await close()
  opened.close()
  if (refused !== null) throw new OutOfMemoryError('a buffer', 0, refused.message)
  // What is to be mapped at once and cannot be had throws this, says WebGPU.
  throw failure instanceof RangeError ? new OutOfMemoryError('a buffer', 0, failure.message) : failure
}

class SelfTestError extends BackendUnavailableError {}

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
  readonly #slots: ExpertSlots
  readonly #tier: HostTier | null // the experts that the GPU has no room for
  readonly #info: StepInfo
  readonly #prompt: PromptPass
  readonly #decode: DecodePass
  readonly #head: Head
  readonly #profiler: Profiler | null
  readonly #counts = { promptTokens: 0, decodeTokens: 0, steps: 0, seconds: 0 }
  readonly #turns = new Turns()
  #closed = false

  static async open(
    opened: GpuDevice,
    packed: PackedModel,
    options: BackendOptions,
    gpuOptions: WebgpuOptions,
    undo: (() => Promise<void>)[], // what is to be done where this fails
    refusals: number, // of memory, when this was tried before
  ): Promise<WebgpuBackend> {
    const { device, limits, description } = opened
    const { config, experts } = packed
    if (description.software && options.automatic) {
      throw new BackendUnavailableError(
        'webgpu',
        `${description.name} is a software adapter, slower than the CPU itself`,
        { absent: true },
      )
    }
    if (description.software) options.onNotice?.(`webgpu runs on a software adapter (${description.name}): slow`)
    const onCompiled = (loaded: number, total: number) => options.onProgress?.({ phase: 'kernels', loaded, total })
    const common = { SUBGROUPS: opened.subgroups !== null, PACKED_DOT: opened.packedDot }
    const kernels = new KernelSet(device, common, onCompiled)
    const tuning = { ...(description.software ? SOFTWARE_TUNING : HARDWARE_TUNING), ...gpuOptions.tuning }
    const gpu: GpuContext = { device, kernels, fast: options.precision === 'fast', subgroups: opened.subgroups, tuning }
    const maxBytes = Math.min(limits.maxStorageBufferBindingSize, limits.maxBufferSize)
    const chunkTokens = gpuOptions.chunkTokens ?? (description.software ? SOFTWARE_CHUNK_TOKENS : CHUNK_TOKENS)
    const layout = slotLayout(experts.layout)
    const shared = packed.tensors.layers.map(layer => sharedMoves(layer.sharedExpert, layout))
    const { expertsPerToken, precision } = options
    const model = gpuModelOf(packed, {
      ...{ expertsPerToken, precision, planned: options.planned, maxBufferBytes: maxBytes, chunkTokens, tuning },
    })
    const { planned } = model
    const place = await tierPlace(packed, options)
    const room = await takeRoom(device, {
      ...{ model, refusals, gpuMemory: options.gpuMemory, expertMemory: options.expertMemory },
      isShared: gpuOptions.isShared ?? !description.ownMemory,
      reserve: gpuOptions.reserve,
      memory: (place?.host ?? options.wasmHost)?.memory() ?? null,
      host: place && (memory => hostSideOf(packed, options, chunkTokens, memory, place)),
    })
    const { plan, pools } = room
    if (plan.gpuSlots < allExperts(model)) options.onNotice?.(plan.line)
    const states = new StatePool(device, config, layersOfKind(config, 'linear_attention'), maxBytes)
    const kv = new KvPool(device, config, layersOfKind(config, 'full_attention'), maxBytes)
    const pages = Math.min(plannedPages(planned), kv.mostPages)
    await states.reserve(plannedStates(planned) - 1)
    await kv.reserve(pages, pages)
    const shape = {
      experts: config.numExperts,
      k: expertsPerToken,
      maxTokens: chunkTokens,
      logitsStride: logitsStride(config.numExperts, 0),
    }
    const space = await makeChecked(device, 'workspace', () => createWorkspace(gpu, config, shape))
    const { expertSize: recordBytes } = experts.layout
    const { hiddenSize } = config
    const measured = {
      ...{ expertSize: recordBytes, expertsPerToken: shape.k, hiddenSize, maxRows: chunkTokens },
      isCountGiven: options.threads !== undefined,
    }
    const residentExperts = packed.weights.size / recordBytes
    const alone = { layers: config.numLayers, expertsPerToken: shape.k, residentExperts }
    const measure = async (workers: HostWorkers) => {
      if (gpuOptions.way) return gpuOptions.way(workers.threads)
      const chosen = chooseWay(await measureTiers(device, workers, measured), options.automatic ? alone : undefined)
      if (chosen.way === 'cpu') throw new BackendUnavailableError('webgpu', chosen.line)
      return chosen
    }
    const tiersOf = (memorySlots: number, { usesToPay }: TierWay) => {
      const { numLayers: layers, numExperts } = config
      const { poolOfLayer, slots: poolSlots } = pools
      const sizes = { layers, experts: numExperts, expertBytes: layout.stride, poolOfLayer, poolSlots, memorySlots }
      const bytesPerStep = defaultMovesPerStep * layout.stride
      const rule = { bytesPerStep, usesToPay, fillsPerStep: defaultFillsPerStep }
      return new ExpertTiers({ ...sizes, policy: 'lrfu' }, rule, { stagingBuffers: STAGING_BUFFERS })
    }
    const { memorySlots } = plan
    const tier =
      place !== null && memorySlots > 0
        ? await openHostTier(packed, options, chunkTokens, memorySlots, { measure, tiersOf }, place)
        : null
    if (tier !== null) undo.push(() => tier.close())
    const diskReader = await openReader(packed, options)
    undo.push(() => diskReader.close())
    const reader = tier === null ? diskReader : tier.readerBefore(diskReader)
    const fileNames = experts.files.map(file => file.name)
    // Before the staging of experts is made: till then there is room for that of weights.
    const spare = stagingBytes(layout.stride, recordBytes)
    const weights = await loadResidentWeights(device, packed, maxBytes, spare, options)
    const least = leastSlots(poolRequest(model))
    const slotsPlan = { config, layout, pools, leastSlots: least, recordBytes, fileNames }
    const slots = await ExpertSlots.create(device, slotsPlan, room.buffers, reader, tier)
    if (tier !== null) tier.above = slots
    opened.lost.catch(error => slots.lose(error))
    const makeRoom = (bytes: number) => slots.giveRoom(bytes)
    states.makeRoom = makeRoom
    kv.makeRoom = makeRoom
    if (pools.hasShared) await slots.loadShared(packed.weights, shared as SlotMove[][])
    const profiler = (options.profile || gpuOptions.timing) && opened.timestamps ? new Profiler(device) : null
    const parts = { gpu, config, space, states, kv, slots, layout, host: tier }
    const readsAhead = options.prefetch !== false && reader.isLocal
    const building = PromptPass.create(parts, weights, profiler, readsAhead)
    const head = await Head.create(gpu, config, space, weights)
    const [prompt, decode] = await Promise.all([
      building,
      // Where nothing is left on disk, guesses are of no use.
      DecodePass.create(parts, weights, head, profiler, readsAhead && tier?.holdsRest !== true),
    ])
    const kind = opened.subgroups === null ? 'portable' : 'subgroups'
    const wrong = await selfTest(parts, weights, packed, gpuOptions.selfTestError?.(kind))
    if (wrong !== null) throw new SelfTestError('webgpu', `${description.name} computes wrong numbers: ${wrong}`)
    // Whoever has room for every expert wants them there, before they are asked for one by one.
    if (slots.holdsAll && readsAhead) void slots.fill().catch(() => {})
    if (tier?.holdsRest && readsAhead) void tier.fill()
    if (tier !== null && readsAhead) void slots.fillEmpty(tier)
    const made = { plan, states, kv, space, slots, tier, prompt, decode, head, profiler, chunkTokens }
    return new WebgpuBackend(opened, packed, options, made)
  }

  private constructor(
    opened: GpuDevice,
    packed: PackedModel,
    options: BackendOptions,
    parts: {
      plan: GpuPlan
      states: StatePool
      kv: KvPool
      space: Workspace
      slots: ExpertSlots
      tier: HostTier | null
      prompt: PromptPass
      decode: DecodePass
      head: Head
      profiler: Profiler | null
      chunkTokens: number
    },
  ) {
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
    this.#info = new StepInfo(opened.device, packed.config, parts.space, parts.kv)
    const { description } = opened
    const paths = [opened.subgroups ? 'subgroups' : 'portable', opened.packedDot ? 'packed dot' : 'unpacked']
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
    const { numLayers, numExperts } = this.config
    if (this.#slots.holdsAll) await this.#slots.fill(loaded => onProgress?.(loaded, numLayers * numExperts))
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
      outputs.push({ logits, argmax, routing: routing && this.#routingOf(routing, size.tokens, row, count) })
      options.signal?.throwIfAborted()
      row += count
    }
    return outputs
  }

  /** One run's share of [layers, tokens, K]. */
  #routingOf(all: ArrayLike<number>, tokens: number, first: number, count: number): Uint16Array {
    const { k } = this.#space.shape
    const own = new Uint16Array(this.config.numLayers * count * k)
    for (let layer = 0; layer < this.config.numLayers; layer++) {
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

/** In Node files are read by threads of their own; elsewhere, and from memory, the source itself is asked. */
async function openReader(packed: PackedModel, options: BackendOptions): Promise<ExpertReader> {
  if (readsFiles(packed)) {
    const { nodeExpertReader } = await import('./nodeExpertReader.js')
    return nodeExpertReader(packed.experts, options, STAGING_BUFFERS)
  }
  return sourceExpertReader(packed.experts)
}

/** Where the processors may compute experts beside the GPU; null: nowhere, since nothing can be shared with threads. */
async function tierPlace(packed: PackedModel, options: BackendOptions): Promise<TierPlace | null> {
  if (readsFiles(packed)) {
    const { nodeTierPlace } = await import('./nodeTierPlace.js')
    return nodeTierPlace(packed, options)
  }
  return options.wasmHost?.shared ? sourceTierPlace(packed.experts, options.wasmHost) : null
}

/** Experts are in files that threads of Node can read. */
function readsFiles({ experts }: PackedModel): boolean {
  return globalThis.process?.versions?.node !== undefined && experts.files.every(file => isPath(file.name))
}

function isPath(name: string): boolean {
  return /^(\/|[A-Za-z]:[\\/]|\\\\)/.test(name)
}
