// Evaluates one token each of a few sequences, or a token of one and guesses behind it: records a
// step's commands, submits them and reads back. Layers are recorded back to back as if every expert
// were in a slot; the first miss turns the commands after it into no-ops. The host then has missing
// experts read or computed (decodeMisses.ts) and resumes at that layer. A submission ends at a
// router's choice, so that nothing is computed in vain where every layer misses; the next commands
// are recorded while the GPU is busy. Layers are counted among those with experts.
import type { CommandList } from '../../../gpu/device/commandList.js'
import type { GpuContext } from '../../../gpu/device/gpuContext.js'
import { bufferUsage } from '../../../gpu/device/gpuFlags.js'
import { makeChecked, readMapped } from '../../../gpu/device/gpuMemory.js'
import { storageBuffer } from '../../../gpu/device/kernel.js'
import type { Op, StepSize } from '../../../gpu/device/op.js'
import { type Profiler, Recorder } from '../../../gpu/device/recorder.js'
import { addRowsOp } from '../../../ops/activation/addRows.gpu.js'
import { argmaxOp } from '../../../ops/argmax/argmax.gpu.js'
import { attentionPartsBytes } from '../../../ops/attention/attentionShape.gpu.js'
import { embedOp } from '../../../ops/embed/embed.gpu.js'
import { matVecOp } from '../../../ops/matmul/matVec.gpu.js'
import { logitsStride } from '../../../ops/router/router.gpu.js'
import { headRowsOp } from '../draft/draftHeadOps.js'
import type { StepSlots } from '../experts/residency.js'
import type { ResidentWeights } from '../memory/residentWeights.js'
import { MOST_AHEAD } from '../memory/routerWeights.js'
import { TOKEN_WORDS } from '../memory/stepInfo.js'
import { MAX_DECODE_BATCH, type Workspace } from '../memory/workspace.js'
import type { LayerParts } from '../prefill/prefillLayer.js'
import { type DecodeLayer, type DecodeOptions, decodeLayers } from './decodeLayer.js'
import { type Begin, DecodeMisses, type Seen } from './decodeMisses.js'
import type { Head } from './lmHead.js'
import { PreparedCommands } from './preparedCommands.js'
import { Pieces } from './splitSubmission.js'

const STATUS_BYTES = 16
const RESUMED_LAYERS = 4 // of the first piece after a miss: most windows between misses are no longer

export interface DecodeResult {
  readonly winners: Uint32Array // [tokens]
  readonly routing: Uint32Array // [layers with experts, MAX_DECODE_BATCH, K]
}

interface DecodeOrders {
  readonly signal?: AbortSignal
  /** Called while the GPU is at work, where every expert is in a slot. */
  readonly onSubmitted?: () => void
  /** Is lent the logits of all tokens, [tokens, vocab]. */
  readonly takeLogits?: (logits: Float32Array) => void
}

interface ResidentStep extends StepSize {
  readonly logits: boolean // they come back as well
  /**
   * Tokens that the GPU knows first: the best one of the step before, or guesses behind the first
   * token.
   */
  readonly known?: 'best' | 'guesses'
}

interface RunOptions extends StepSize {
  readonly predicts: boolean // what the next layers will choose
  readonly logits: boolean // they come back with the last layer
}

/** The buffers that decode steps have besides those of prompts. */
interface DecodeBuffers {
  readonly space: Workspace
  readonly hostRows: GPUBuffer // [MAX_DECODE_BATCH, hidden]
  readonly readbacks: readonly [GPUBuffer, GPUBuffer]
  readonly winnersAt: number // bytes in a readback, after status and choices
  readonly mixingAt: number
  readonly hiddenAt: number
}

/** What steps are recorded from. */
interface DecodeOps {
  readonly addRows: Op
  readonly embed: Op
  readonly layers: readonly DecodeLayer[]
  readonly rest: Op // layers after the last one with experts
  readonly project: Op
  readonly argmax: Op
  readonly headRows: Op | null // of the head for drafts
}

export class DecodePass {
  private readonly gpu: GpuContext
  private readonly slots: StepSlots
  private readonly layerCount: number // with experts, a head's aside
  private readonly rowBytes: number // of hidden
  private readonly ranks: number // of a token, the shared expert's among them where it has a slot
  private readonly readsRows: boolean // for the CPU, which computes, too
  private readonly reading: [Promise<unknown> | null, Promise<unknown> | null] = [null, null]
  private side = 0 // of the last resident token, which the next one takes the other of
  private readonly prepared: PreparedCommands<GPUCommandBuffer[]>
  private readonly lists: PreparedCommands<readonly CommandList[]> // what whole steps are encoded from

  private constructor(
    /** What its layers are made of, for one more that decodes. */
    readonly layerParts: LayerParts,
    readonly layerOptions: DecodeOptions,
    private readonly buffers: DecodeBuffers,
    private readonly ops: DecodeOps,
    private readonly misses: DecodeMisses,
    private readonly head: Head,
    private readonly profiler: Profiler | null,
  ) {
    const { gpu, config, space, slots, host, states, kv } = layerParts
    this.gpu = gpu
    this.slots = slots
    this.layerCount = config.moeLayers.length
    this.rowBytes = config.hiddenSize * 4
    this.ranks = space.shape.k + (slots.sharedSlot(0) === null ? 0 : 1)
    this.readsRows = host !== null
    this.prepared = new PreparedCommands([states, kv, slots])
    this.lists = new PreparedCommands([states, kv, slots])
  }

  static async create(
    parts: LayerParts,
    weights: ResidentWeights,
    head: Head,
    profiler: Profiler | null,
    prefetch: boolean,
  ): Promise<DecodePass> {
    const { gpu, config } = parts
    const { tuning } = gpu
    const ahead = prefetch ? Math.max(0, Math.min(tuning.AHEAD, MOST_AHEAD, config.moeLayers.length - 1)) : 0
    const buffers = await makeChecked(gpu.device, 'workspace', () => createBuffers(parts, ahead))
    const { space, hostRows } = buffers
    const splits = tuning.SPLITS
    const bytes = attentionPartsBytes(config, MAX_DECODE_BATCH, splits)
    const attentionParts = storageBuffer(gpu.device, bytes, 'attention parts')
    const own = { ...parts, space }
    const options = { splits, attentionParts, ahead }
    const projection = {
      status: space.status,
      outStride: config.vocabSize,
      norm: { weight: weights.norm, eps: config.rmsNormEps },
      label: 'lmHead',
    }
    const source = { rows: space.hidden, width: config.hiddenSize }
    const [addRows, embed, project, argmax, { layers, rest }, headRows] = await Promise.all([
      addRowsOp(gpu, hostRows, space.hidden, config.hiddenSize),
      embedOp(gpu, weights.embed, space.tokenInfo, space.hidden),
      matVecOp(gpu, weights.lmHead, space.hidden, head.logits, projection),
      argmaxOp(gpu, head.logits, config.vocabSize, source, MAX_DECODE_BATCH, head.winners),
      decodeLayers(own, weights, options),
      weights.draftHead && headRowsOp(own, weights, 'single'),
    ])
    const ops = { addRows, embed, layers, rest, project, argmax, headRows }
    const misses = new DecodeMisses(own, layers, hostRows, ahead, profiler)
    return new DecodePass(own, options, buffers, ops, misses, head, profiler)
  }

  /** Seconds of layers that the CPU has helped with. */
  get helpSeconds(): Readonly<Record<string, number>> {
    return this.misses.helpSeconds
  }

  /**
   * Tokens of a run are guesses after the first. Winners are NOT_FINITE where something went wrong.
   */
  async run(size: StepSize, orders: DecodeOrders): Promise<DecodeResult> {
    const began = performance.now()
    const before = this.misses.readsAsked
    const { isResident } = this
    const result = isResident ? await this.runResident(size, orders) : await this.runStreaming(size, orders)
    this.misses.stepDone((performance.now() - began) / 1000, this.misses.readsAsked - before)
    if (!isResident && orders.takeLogits) await this.head.takeRows(size.tokens, orders.takeLogits)
    return result
  }

  /** Whether a token needs nothing of the host between its first command and its last. */
  private get isResident(): boolean {
    return this.slots.isAllResident
  }

  private async runResident(size: StepSize, { signal, onSubmitted, takeLogits }: DecodeOrders): Promise<DecodeResult> {
    const side = this.side ^ 1
    await this.reading[side] // of a token that nobody wanted
    const step = { ...size, logits: takeLogits !== undefined }
    const commands = this.prepared.take(kindOf(step, side)) ?? this.recordResident(step, side)
    const reading = this.submitResident(commands, step, takeLogits)
    onSubmitted?.()
    if (this.reading[side ^ 1] === null && this.profiler === null) this.prepare(step)
    return await this.finish(reading, size.tokens, signal)
  }

  /**
   * Submits the token after the one that was submitted last, whichever that will be: it is copied
   * on the GPU. Null where that cannot be now. Only for a single run.
   */
  submitNext(): Promise<DecodeResult> | null {
    const side = this.side ^ 1
    if (!this.isResident || this.profiler !== null || this.reading[side] !== null) return null
    const step = { tokens: 1, runs: 1, logits: false, known: 'best' } as const
    return this.submitResident(this.recordResident(step, side, [this.head.winners]), step)
  }

  /**
   * Submits a step of a token and of guesses that the GPU is about to make, whichever they will be:
   * `from` has what they are written to. Null where that cannot be now. The token is written, and
   * nothing else is in flight.
   */
  submitGuessed(from: readonly GPUBuffer[]): Promise<DecodeResult> | null {
    const side = this.side ^ 1
    if (!this.isResident || this.profiler !== null || this.reading[side] !== null) return null
    const step = { tokens: from.length + 1, runs: 1, logits: false, known: 'guesses' } as const
    const commands = this.prepared.take(kindOf(step, side)) ?? this.recordResident(step, side, from)
    const reading = this.submitResident(commands, step)
    this.prepare(step, from)
    return reading
  }

  /** What a token that was submitted has come to. */
  async finish(reading: Promise<DecodeResult>, tokens: number, signal?: AbortSignal): Promise<DecodeResult> {
    // Beside the GPU's work: what the last step says about who should be where, and the way of one
    // expert there.
    this.slots.beginStep()
    this.slots.moveUp()
    const seen = await reading
    signal?.throwIfAborted()
    this.misses.touchAll(seen.routing, tokens)
    return seen
  }

  private submitResident(
    commands: GPUCommandBuffer[],
    step: ResidentStep,
    takeLogits?: DecodeOrders['takeLogits'],
  ): Promise<DecodeResult> {
    this.slots.submit(commands, this.layerCount + 1)
    this.slots.letGo()
    this.side ^= 1
    const side = this.side
    // Both on their way at once, and both back before anything else happens: the head's memory is
    // used again.
    const read = () =>
      Promise.all([this.read(step.tokens, side), takeLogits && this.head.takeRows(step.tokens, takeLogits)])
    const reading = this.gpu.waits.until(kindOf(step, 0), read).then(([seen]) => seen)
    const ended = () => {
      this.reading[side] = null
    }
    this.reading[side] = reading.then(ended, ended)
    return reading
  }

  /**
   * A whole step whose experts are all in slots. `from`: buffers with the step's last tokens, which
   * the GPU knows first.
   */
  private recordResident(size: ResidentStep, side: number, from: readonly GPUBuffer[] = []): GPUCommandBuffer[] {
    const kind = kindOf(size, side)
    const lists = this.lists.get(kind)
    if (lists !== null) return lists.map(list => list.encode(this.gpu.device))
    // In timing mode each command is measured.
    const isKept = this.profiler === null
    const pieces = this.pieces(1, from.length > 0 || !isKept, isKept)
    for (const [i, token] of from.entries()) {
      const row = size.tokens - from.length + i
      pieces.recorder.copy(token, 0, this.buffers.space.tokenInfo, row * TOKEN_WORDS * 4, 4)
    }
    this.ops.embed(pieces.recorder, size)
    for (const layer of this.ops.layers) {
      layer.mixer(pieces.recorder, size)
      layer.resident(pieces.recorder, size)
      pieces.layerDone()
    }
    this.recordEnd(pieces.recorder, size, side)
    const commands = pieces.finish()
    if (isKept) this.lists.put(kind, pieces.lists)
    return commands
  }

  /** `isWhole`: in one, because the GPU is busy with something else yet. */
  private pieces(first: number, isWhole = this.profiler !== null, keepsLists = false): Pieces {
    return new Pieces(this.gpu, isWhole ? 0 : this.gpu.tuning.GROWTH, first, this.profiler, keepsLists)
  }

  private async runStreaming(size: StepSize, { signal, takeLogits }: DecodeOrders): Promise<DecodeResult> {
    const { slots, misses } = this
    const how = { ...size, predicts: misses.begin(), logits: takeLogits !== undefined }
    let from = -1
    let to = misses.reach(from)
    slots.gathers = true
    try {
      await this.reading[this.side] // of a token that nobody wanted
      let commands = this.record(from, to, how)
      for (;;) {
        const leavesOut = misses.leavesOut(to)
        if (leavesOut) misses.allowLeavingOut(to)
        slots.submit(commands, to + 1)
        // Commands that are submitted have their experts: slots change hands in the order of the
        // queue.
        slots.letGo()
        const submitted = performance.now()
        const reading = this.read(size.tokens, this.side)
        // Recorded while the GPU is at work: what comes next, if no miss is before it, or at it
        // where that is likely.
        const next = misses.reach(to)
        const expected = misses.expectedBegin(leavesOut)
        const following = to < this.layerCount && this.profiler === null ? this.record(to, next, how, expected) : null
        // Beside the GPU's work, too: what the last step says about who should be where, and the
        // way of one expert there.
        slots.beginStep()
        slots.moveUp()
        const seen = await reading
        const readAt = performance.now()
        signal?.throwIfAborted()
        const { layer, begin } = misses.answer(seen, { from, to, leavesOut }, size, signal)
        if (layer === this.layerCount) return seen
        from = layer
        const isNext = layer === to
        to = isNext ? next : misses.reach(from)
        const isPrepared = isNext && following !== null && begin === expected
        commands = isPrepared ? following : this.record(from, to, how, begin)
        await misses.settle(readAt - submitted, readAt, signal)
      }
    } finally {
      slots.letGo()
      await misses.end()
      slots.gathers = false
    }
  }

  /**
   * From a layer's experts, -1: from the embedding, to another layer's choice, or with all layers
   * to the end of the token. What is read back comes with the choice; the experts of a layer that
   * may leave some out come after that.
   */
  private record(from: number, to: number, how: RunOptions, begin: Begin = 'choose'): GPUCommandBuffer[] {
    const { tokens, predicts } = how
    const size = how
    const pieces = this.pieces(from < 0 ? 1 : RESUMED_LAYERS)
    if (from < 0) this.ops.embed(pieces.recorder, size)
    for (let layer = Math.max(0, from); layer <= to && layer < this.layerCount; layer++) {
      const ops = this.ops.layers[layer]
      const routing = predicts ? ops.routingAhead : ops.routing
      const { recorder } = pieces
      if (layer === from && begin !== 'choose') {
        if (begin === 'add') this.ops.addRows(recorder, size)
      } else {
        if (layer === from) routing.choose(recorder, size)
        else {
          ops.mixer(recorder, size)
          routing.route(recorder, size)
        }
        if (layer === to) break
        ops.experts(recorder, size)
      }
      if (layer + 1 < to) pieces.layerDone()
    }
    if (to === this.layerCount) this.recordEnd(pieces.recorder, size, this.side)
    else this.recordCopies(pieces.recorder, tokens, this.side)
    const commands = pieces.finish()
    if (this.misses.leavesOut(to)) {
      const recorder = new Recorder(this.gpu.device, null)
      this.ops.layers[to].experts(recorder, size)
      commands.push(recorder.finish() as GPUCommandBuffer)
    }
    return commands
  }

  /** All after the last layer with experts. */
  private recordEnd(recorder: Recorder, size: StepSize & { readonly logits: boolean }, side: number): void {
    const { rest, project, argmax, headRows } = this.ops
    rest(recorder, size)
    project(recorder, size)
    argmax(recorder, size)
    headRows?.(recorder, size)
    const { readbacks, winnersAt } = this.buffers
    recorder.copy(this.head.winners, 0, readbacks[side], winnersAt, size.tokens * 4)
    this.recordCopies(recorder, size.tokens, side)
    if (size.logits) this.head.recordRows(recorder, size.tokens)
  }

  private recordCopies(recorder: Recorder, tokens: number, side: number): void {
    const { space, readbacks, mixingAt, hiddenAt } = this.buffers
    const { choice, status, mixing, hidden } = space
    const readback = readbacks[side]
    recorder.copy(status, 0, readback, 0, STATUS_BYTES)
    recorder.copy(choice, 0, readback, STATUS_BYTES, choice.size)
    if (!this.readsRows) return
    recorder.copy(mixing, 0, readback, mixingAt, this.mixingBytes(tokens))
    recorder.copy(hidden, 0, readback, hiddenAt, tokens * this.rowBytes)
  }

  // The next token's commands are the same as this one's: they are recorded while the GPU is busy
  // with this one. For the other side, too, since a step of another kind may come between.
  private prepare(size: ResidentStep, from: readonly GPUBuffer[] = []): void {
    const side = [this.side ^ 1, this.side].find(each => !this.prepared.has(kindOf(size, each)))
    if (side !== undefined) this.prepared.put(kindOf(size, side), this.recordResident(size, side, from))
  }

  private async read(tokens: number, side: number): Promise<Seen & DecodeResult> {
    const { readbacks, winnersAt, mixingAt, hiddenAt } = this.buffers
    const rowBytes = tokens * this.rowBytes
    const bytes = await readMapped(readbacks[side], this.readsRows ? hiddenAt + rowBytes : mixingAt)
    const words = new Uint32Array(bytes)
    await this.profiler?.collect()
    return {
      missed: words[0] - 1,
      routing: words.subarray(STATUS_BYTES / 4, winnersAt / 4),
      winners: words.slice(winnersAt / 4, winnersAt / 4 + tokens),
      weights: new Float32Array(bytes, mixingAt, this.readsRows ? this.mixingBytes(tokens) / 4 : 0),
      hidden: new Float32Array(bytes, this.readsRows ? hiddenAt : 0, this.readsRows ? rowBytes / 4 : 0),
    }
  }

  /** Slots and weights of a layer's ranks. */
  private mixingBytes(tokens: number): number {
    return tokens * this.ranks * 8
  }
}

function createBuffers({ gpu, config, space: prompts, host }: LayerParts, ahead: number): DecodeBuffers {
  const { device } = gpu
  const { k } = prompts.shape
  const stride = logitsStride(config.numExperts, ahead)
  const shape = { ...prompts.shape, maxTokens: MAX_DECODE_BATCH, logitsStride: stride }
  // A choice table of its own: small enough to come back whole with every token. Predictions come
  // after the layers, and what is left to the CPU after those.
  const choiceBytes = (config.expertLayers.length + ahead + 1) * MAX_DECODE_BATCH * k * 4
  const space = {
    ...prompts,
    shape,
    choice: storageBuffer(device, choiceBytes, 'decode choice'),
    logits: storageBuffer(device, MAX_DECODE_BATCH * stride * 4, 'decode router logits'),
  }
  const hiddenBytes = MAX_DECODE_BATCH * config.hiddenSize * 4
  const hostRows = storageBuffer(device, host === null ? 0 : hiddenBytes, 'host rows')
  const winnersAt = STATUS_BYTES + space.choice.size
  const mixingAt = winnersAt + MAX_DECODE_BATCH * 4
  const hiddenAt = mixingAt + MAX_DECODE_BATCH * (k + 1) * 8
  const size = host === null ? mixingAt : hiddenAt + hiddenBytes
  const usage = bufferUsage.mapRead | bufferUsage.copyDst
  const readback = () => device.createBuffer({ label: 'decode readback', size, usage })
  return { space, hostRows, readbacks: [readback(), readback()], winnersAt, mixingAt, hiddenAt }
}

function kindOf({ tokens, runs, logits, known }: ResidentStep, side: number): string {
  return `${tokens} ${runs} ${logits} ${known} ${side}`
}
