// Evaluates runs of any length through all layers with the prompt's kernels. Layers whose experts are all in slots are
// recorded back to back; where some may be missing, the routing comes back to the host once per layer, and the experts
// come in waves. Where the host computes too, it takes the missing experts that have few tokens, while those with many are
// brought; and where experts are on disk, what the next layer will want is guessed by its router, run early, and read meanwhile.
import { countPicks, mostPicked } from '../../../experts/prefetch.js'
import type { GpuContext } from '../../../gpu/device/gpuContext.js'
import { bufferUsage } from '../../../gpu/device/gpuFlags.js'
import { makeChecked, readMapped } from '../../../gpu/device/gpuMemory.js'
import { storageBuffer } from '../../../gpu/device/kernel.js'
import type { Op, StepSize } from '../../../gpu/device/op.js'
import { readBuffer } from '../../../gpu/device/readBuffer.js'
import { type Profiler, Recorder } from '../../../gpu/device/recorder.js'
import type { ModelConfig } from '../../../model/config.js'
import { addRowsOp } from '../../../ops/activation/addRows.gpu.js'
import { embedOp } from '../../../ops/embed/embed.gpu.js'
import { headRowsOp } from '../draft/draftHeadOps.js'
import type { HostExperts, HostPair } from '../experts/cpuExperts.js'
import type { StepSlots } from '../experts/residency.js'
import type { ResidentWeights } from '../memory/residentWeights.js'
import type { Workspace } from '../memory/workspace.js'
import { type LayerParts, type PromptLayer, type PromptMoe, promptLayer } from './prefillLayer.js'

/** Looks at buffers between the stages of a layer. */
export interface LayerTap {
  afterMixer(layer: number): Promise<void>
  afterRouter(layer: number): Promise<void>
  afterLayer(layer: number): Promise<void>
}

interface RunOptions {
  readonly first?: number
  readonly end?: number
  readonly signal?: AbortSignal
  readonly tap?: LayerTap
  readonly last?: () => void
}

const SUBMIT_LAYERS = 4

export class PromptPass {
  private readonly gpu: GpuContext
  private readonly config: ModelConfig
  private readonly space: Workspace
  private readonly slots: StepSlots
  private readonly choiceReadback: GPUBuffer
  private readonly profiler: Profiler | null
  private readonly prefetch: boolean
  private readonly host: HostExperts | null
  private readonly hostRows: GPUBuffer // [tokens, hidden]
  private readonly layerReadback: GPUBuffer // choice, mixing and hidden of one layer
  private embedTokens!: Op
  private addRows!: Op
  private layers!: readonly PromptLayer[] // that of a head for drafts last
  private headRows!: Op | null
  private moe!: readonly PromptMoe[] // the layers with experts, a head's aside

  private constructor(parts: LayerParts, profiler: Profiler | null, prefetch: boolean) {
    this.gpu = parts.gpu
    this.config = parts.config
    this.space = parts.space
    this.slots = parts.slots
    this.profiler = profiler
    this.prefetch = prefetch
    const size = Math.max(16, parts.config.expertLayers.length * parts.space.shape.maxTokens * parts.space.shape.k * 4)
    const usage = bufferUsage.mapRead | bufferUsage.copyDst
    const { device } = parts.gpu
    this.choiceReadback = device.createBuffer({ label: 'choice readback', size, usage })
    this.host = parts.host
    const rows = this.host === null ? 0 : parts.space.shape.maxTokens
    this.hostRows = storageBuffer(device, rows * parts.config.hiddenSize * 4, 'host rows of a prompt')
    const layerBytes = Math.max(16, this.rowsAt(rows) + rows * parts.config.hiddenSize * 4)
    this.layerReadback = device.createBuffer({ label: 'layer readback', size: layerBytes, usage })
  }

  static async create(
    parts: LayerParts,
    weights: ResidentWeights,
    profiler: Profiler | null,
    prefetch: boolean,
  ): Promise<PromptPass> {
    const { gpu, space } = parts
    const pass = await makeChecked(gpu.device, 'workspace', () => new PromptPass(parts, profiler, prefetch))
    const { draftHead } = weights
    const all = draftHead === null ? weights.layers : [...weights.layers, draftHead.layer]
    // All at once, and awaited as one: a kernel that fails while another is waited for would end the process.
    ;[pass.embedTokens, pass.addRows, pass.headRows, pass.layers] = await Promise.all([
      embedOp(gpu, weights.embed, space.tokenInfo, space.hidden),
      addRowsOp(gpu, pass.hostRows, space.mlpOut, parts.config.hiddenSize),
      draftHead && headRowsOp(parts, weights, 'many'),
      Promise.all(all.map((layer, i) => promptLayer(parts, layer, i))),
    ])
    pass.moe = pass.layers
      .slice(0, weights.layers.length)
      .flatMap(({ feedForward }) => (feedForward.kind === 'moe' ? [feedForward] : []))
    return pass
  }

  recorder(): Recorder {
    return new Recorder(this.gpu.device, this.profiler)
  }

  /**
   * Through layers [first, end), then what `last` records. All is submitted when this returns: commands that were recorded
   * because their experts are in slots must not wait until those are given away.
   */
  async run(recorder: Recorder, size: StepSize, options: RunOptions = {}): Promise<void> {
    try {
      await this.runLayers(recorder, size, options)
    } finally {
      this.slots.endAhead()
      this.host?.endAhead()
    }
  }

  private async runLayers(recorder: Recorder, size: StepSize, options: RunOptions): Promise<void> {
    const { first = 0, end = this.config.numLayers, signal, tap, last } = options
    this.slots.beginStep()
    for (let layer = first; layer < end; layer++) {
      const ops = this.layers[layer]
      ops.mixer(recorder, size)
      if (tap) {
        recorder.submit()
        await tap.afterMixer(layer)
      }
      const { feedForward } = ops
      if (feedForward.kind === 'dense') feedForward.block(recorder, size)
      else {
        const guessed = tap === undefined ? this.guess(recorder, size, feedForward) : null
        if (guessed === null) feedForward.router(recorder, size)
        else feedForward.routerAfterEarly(recorder, size)
        if (tap) {
          recorder.submit()
          await tap.afterRouter(layer)
        }
        await this.experts(recorder, size, feedForward, guessed, signal)
      }
      // The GPU begins while the host records the rest.
      if (layer % SUBMIT_LAYERS === 0) recorder.submit()
      if (this.profiler !== null) {
        recorder.submit()
        await this.profiler.collect()
      }
      if (tap) {
        recorder.submit()
        await tap.afterLayer(layer)
      }
    }
    last?.()
    recorder.submit()
  }

  /** Where that helps: what the next layer with experts will choose, by the rows as they are now. null: nothing is guessed. */
  private guess(recorder: Recorder, size: StepSize, { place }: PromptMoe): PromptMoe | null {
    const next = this.moe.at(place + 1) ?? null
    const helps = this.prefetch && this.host?.helpsNext(place) === true
    if (!helps || next === null || this.slots.isResident(place)) return null
    next.early(recorder, size)
    return next
  }

  private async experts(
    recorder: Recorder,
    size: StepSize,
    ops: PromptMoe,
    guessed: PromptMoe | null,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    if (this.slots.isResident(ops.place)) ops.experts(recorder, size)
    else if (this.host !== null) return this.share(this.host, recorder, size, ops, guessed, signal)
    else {
      recorder.submit()
      const wanted = new Set(await this.readChoice(size.tokens, ops.place))
      signal?.throwIfAborted()
      await this.bring(recorder, size, ops, wanted, signal)
    }
    ops.combine(recorder, size)
  }

  private async bring(
    recorder: Recorder,
    size: StepSize,
    ops: PromptMoe,
    experts: Iterable<number>,
    signal?: AbortSignal,
  ) {
    const wanted = [...experts].sort((a, b) => a - b)
    const ahead = this.prefetch && this.host === null // who decides for both sides reads into memory
    for await (const _ of this.slots.waves(ops.place, wanted, { ahead, signal })) {
      ops.expertsOfWave(recorder, size)
      recorder.submit()
    }
  }

  /** A layer's experts by both sides: the host takes those that are not in slots and have few tokens. */
  private async share(
    host: HostExperts,
    recorder: Recorder,
    size: StepSize,
    ops: PromptMoe,
    guessed: PromptMoe | null,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const { place: layer } = ops
    recorder.submit()
    const { choice, mixing, weights, guess, hidden } = await this.readLayer(size.tokens, layer, guessed)
    signal?.throwIfAborted()
    const { k } = this.space.shape
    const counts = countPicks(choice)
    const missing = new Map([...counts].filter(([expert]) => !this.slots.isShown(layer, expert)))
    const brought = host.toBring(missing)
    const hosts = new Set([...missing.keys()].filter(expert => !brought.has(expert)))
    const pairs: HostPair[] = []
    for (const [i, expert] of choice.entries()) {
      if (!hosts.has(expert)) continue
      pairs.push({ token: Math.floor(i / k), expert, weight: weights[2 * i + 1] })
      weights[2 * i + 1] = 0 // here
    }
    const computing = pairs.length > 0 ? host.compute(layer, hidden, pairs, signal) : null
    computing?.catch(() => {}) // awaited below
    try {
      if (pairs.length > 0) this.gpu.device.queue.writeBuffer(this.space.mixing, 0, mixing)
      const ours = [...counts.keys()].filter(expert => !hosts.has(expert))
      const bringing = this.bring(recorder, size, ops, ours, signal)
      // Both sides have asked for theirs: what they want is pinned, or waits for its turn.
      if (guessed !== null) host.readNextLayer(guessed.place, counts.size, mostPicked(countPicks(guess)))
      await bringing
      ops.combine(recorder, size)
      if (computing === null) return
      recorder.submit()
      this.gpu.device.queue.writeBuffer(this.hostRows, 0, await computing)
      this.addRows(recorder, size)
    } finally {
      await computing?.catch(() => {}) // its memory is used again
    }
  }

  /** What a layer's router has chosen, by what weights, what is guessed of another, and the rows that its experts get; [tokens, …]. */
  private async readLayer(tokens: number, layer: number, guessed: PromptMoe | null) {
    const { maxTokens, k } = this.space.shape
    const mixingAt = tokens * k * 4
    const guessAt = tokens * k * 12
    const guesses = guessed === null ? 0 : tokens * k
    const rowsAt = this.rowsAt(tokens)
    const width = this.config.hiddenSize
    const recorder = new Recorder(this.gpu.device, null)
    recorder.copy(this.space.choice, layer * maxTokens * k * 4, this.layerReadback, 0, mixingAt)
    recorder.copy(this.space.mixing, 0, this.layerReadback, mixingAt, tokens * k * 8)
    if (guessed !== null) {
      recorder.copy(this.space.choice, guessed.place * maxTokens * k * 4, this.layerReadback, guessAt, guesses * 4)
    }
    recorder.copy(this.space.hidden, 0, this.layerReadback, rowsAt, tokens * width * 4)
    recorder.submit()
    const bytes = await readMapped(this.layerReadback, rowsAt + tokens * width * 4)
    return {
      choice: new Uint32Array(bytes, 0, tokens * k),
      mixing: new Uint8Array(bytes, mixingAt, tokens * k * 8),
      weights: new Float32Array(bytes, mixingAt, tokens * k * 2), // the same bytes: slot, weight
      guess: new Uint32Array(bytes, guessAt, guesses),
      hidden: new Float32Array(bytes, rowsAt, tokens * width),
    }
  }

  /** After so many tokens' choice, mixing and guess. */
  private rowsAt(tokens: number): number {
    return tokens * this.space.shape.k * 16
  }

  /** After a step, for the head for drafts: its keys and values of the step's tokens. Their rows are gone afterwards. */
  addHeadRows(size: StepSize): void {
    if (this.headRows === null) return
    const recorder = new Recorder(this.gpu.device, null)
    this.headRows(recorder, size)
    recorder.submit()
  }

  embed(recorder: Recorder, size: StepSize): void {
    this.embedTokens(recorder, size)
  }

  /** The experts of the tokens in one layer, counted among those with experts, [tokens, K]. */
  async readChoice(tokens: number, layer: number): Promise<Uint32Array> {
    const { maxTokens, k } = this.space.shape
    const bytes = tokens * k * 4
    const recorder = new Recorder(this.gpu.device, null)
    recorder.copy(this.space.choice, layer * maxTokens * k * 4, this.choiceReadback, 0, bytes)
    recorder.submit()
    return new Uint32Array(await readMapped(this.choiceReadback, bytes))
  }

  /** What the experts of all layers count for, [layers, tokens, K]. */
  async readWeights(tokens: number): Promise<Float32Array> {
    const { weightsRow } = this.space
    const { maxTokens, k } = this.space.shape
    const layers = this.config.moeLayers.length
    const out = new Float32Array(layers * tokens * k)
    if (layers === 0) return out
    const row = maxTokens * k
    const { device } = this.gpu
    const all = new Float32Array(await readBuffer(device, this.space.choice, weightsRow * row * 4, layers * row * 4))
    for (let layer = 0; layer < layers; layer++) {
      out.set(all.subarray(layer * row, layer * row + tokens * k), layer * tokens * k)
    }
    return out
  }

  /** The experts of all layers that have some, [layers, tokens, K]. */
  async readRouting(tokens: number): Promise<Uint16Array> {
    const { maxTokens, k } = this.space.shape
    const layers = this.config.moeLayers.length
    const row = tokens * k
    if (layers === 0) return new Uint16Array(0)
    const recorder = new Recorder(this.gpu.device, null)
    for (let layer = 0; layer < layers; layer++) {
      recorder.copy(this.space.choice, layer * maxTokens * k * 4, this.choiceReadback, layer * row * 4, row * 4)
    }
    recorder.submit()
    return Uint16Array.from(new Uint32Array(await readMapped(this.choiceReadback, layers * row * 4)))
  }
}
