// Evaluates one token each of a few sequences, or a few of one where they are guesses. Execution is optimistic: layers are recorded back to back as if every
// expert were in a slot, the router's choice stays on the GPU, and the first miss turns the commands after it into
// no-ops. The host then sees which experts lack, brings them or computes them itself while the GPU computes the others
// (cpuExperts.ts), and resumes at that layer. Where the host computes, the last layer of a submission may miss: the GPU goes
// on with the experts that it has while the choice comes back. Submissions end at a router's choice, so that nothing is computed for nothing where every layer misses, and the commands that follow are recorded
// while the GPU is busy. How many layers go into one follows the measured distance between misses: all of them when
// nothing misses, one when every layer does. Layers are counted among those with experts; the others are part of the next.
import { ReadAhead } from '../../../experts/prefetch.js'
import { PrefetchGovernor } from '../../../experts/prefetchGovernor.js'
import type { CommandList } from '../../../gpu/device/commandList.js'
import type { GpuContext } from '../../../gpu/device/gpuContext.js'
import { bufferUsage } from '../../../gpu/device/gpuFlags.js'
import { makeChecked, readMapped } from '../../../gpu/device/gpuMemory.js'
import { storageBuffer } from '../../../gpu/device/kernel.js'
import type { Op, StepSize } from '../../../gpu/device/op.js'
import { type Profiler, Recorder } from '../../../gpu/device/recorder.js'
import type { ModelConfig } from '../../../model/config.js'
import { addRowsOp } from '../../../ops/activation/addRows.gpu.js'
import { argmaxOp } from '../../../ops/argmax/argmax.gpu.js'
import { attentionPartsBytes } from '../../../ops/attention/attentionShape.gpu.js'
import { embedOp } from '../../../ops/embed/embed.gpu.js'
import { matVecOp } from '../../../ops/matmul/matVec.gpu.js'
import { logitsStride, NOT_LEFT } from '../../../ops/router/router.gpu.js'
import { headRowsOp } from '../draft/draftHeadOps.js'
import type { HostExperts, HostPair } from '../experts/cpuExperts.js'
import type { StepSlots } from '../experts/noExperts.js'
import type { ResidentWeights } from '../memory/residentWeights.js'
import { MOST_AHEAD } from '../memory/routerWeights.js'
import { TOKEN_WORDS } from '../memory/stepInfo.js'
import { MAX_DECODE_BATCH, type Workspace } from '../memory/workspace.js'
import type { LayerParts } from '../prefill/prefillLayer.js'
import { type DecodeLayer, type DecodeOptions, decodeLayers } from './decodeLayer.js'
import { HelpTimes } from './helpTimes.js'
import type { Head } from './lmHead.js'
import { PreparedCommands } from './preparedCommands.js'
import { Pieces } from './splitSubmission.js'

const STATUS_BYTES = 16
const NO_MISS = new Uint32Array(4)
const RESUMED_LAYERS = 4 // of the first piece after a miss: most windows between misses are no longer
const NEARER = 0.7 // of the expected distance to the next miss: commands after a miss are for nothing

export interface DecodeResult {
  readonly winners: Uint32Array // [tokens]
  readonly routing: Uint32Array // [layers with experts, MAX_DECODE_BATCH, K]
}

/** What a submission has left behind. */
interface Seen extends DecodeResult {
  readonly missed: number // layer; -1: none
  readonly weights: Float32Array // [tokens, ranks, 2]: slot, weight of the layer that missed; empty where nobody asks
  readonly hidden: Float32Array // [tokens, hidden] there
}

/**
 * How commands begin at a layer whose choice is known: by its experts, after choosing once more since it may have missed; by
 * adding what the host gave, its other experts being computed; or after it, nothing having been left to the host.
 */
type Begin = 'choose' | 'add' | 'after'

export interface DecodeOrders {
  readonly signal?: AbortSignal
  /** Called while the GPU is at work, where every expert is in a slot. */
  readonly onSubmitted?: () => void
  /** Is lent the logits of all tokens, [tokens, vocab]. */
  readonly takeLogits?: (logits: Float32Array) => void
}

interface ResidentStep extends StepSize {
  readonly logits: boolean // they come back as well
  /** Tokens that the GPU knows before the host does: the best one of the step before, or guesses behind the first token. */
  readonly known?: 'best' | 'guesses'
}

interface RunOptions extends StepSize {
  readonly predicts: boolean // guess what the next layers will choose
  readonly logits: boolean // they come back with the last layer
}

export class DecodePass {
  /** What its layers are made of, for one more that decodes. */
  layerParts!: LayerParts
  layerOptions!: DecodeOptions
  private readonly gpu: GpuContext
  private readonly config: ModelConfig
  private readonly space: Workspace
  private readonly slots: StepSlots
  private readonly layerCount: number // with experts, a head's aside
  private readonly head: Head
  private readonly profiler: Profiler | null
  private readonly readbacks: readonly [GPUBuffer, GPUBuffer]
  private readonly reading: [Promise<unknown> | null, Promise<unknown> | null] = [null, null]
  private side = 0 // of the last resident token, which the next one takes the other of
  private readonly winnersAt: number
  private readonly mixingAt: number
  private readonly hiddenAt: number
  private readonly readAhead: ReadAhead | null
  private readonly governor: PrefetchGovernor
  private readonly guessed: HostExperts | StepSlots
  private readonly host: HostExperts | null
  private readonly hostRows: GPUBuffer // [MAX_DECODE_BATCH, hidden]
  private addRows!: Op
  private embed!: Op
  private layers!: readonly DecodeLayer[]
  private rest!: Op // layers after the last one with experts
  private project!: Op
  private argmax!: Op
  private headRows!: Op | null // of the head for drafts
  private missRate = 1 // per layer, fading
  private readonly helpTimes = new HelpTimes()
  private readonly prepared: PreparedCommands<GPUCommandBuffer[]>
  private readonly lists: PreparedCommands<readonly CommandList[]> // what whole steps are encoded from

  private constructor(parts: LayerParts, head: Head, profiler: Profiler | null, prefetch: boolean) {
    this.gpu = parts.gpu
    const pools = [parts.states, parts.kv, parts.slots]
    this.prepared = new PreparedCommands(pools)
    this.lists = new PreparedCommands(pools)
    this.config = parts.config
    this.slots = parts.slots
    this.head = head
    this.profiler = profiler
    const { space, gpu, config } = parts
    const { tuning, device } = gpu
    const { k } = space.shape
    // A choice table of its own: small enough to come back whole with every token. Guesses come after the layers, and what
    // is left to the host after those.
    const layers = config.moeLayers.length
    this.layerCount = layers
    const ahead = prefetch ? Math.max(0, Math.min(tuning.AHEAD, MOST_AHEAD, layers - 1)) : 0
    const shape = {
      ...space.shape,
      maxTokens: MAX_DECODE_BATCH,
      logitsStride: logitsStride(config.numExperts, ahead),
    }
    const choiceBytes = (config.expertLayers.length + ahead + 1) * MAX_DECODE_BATCH * k * 4
    this.space = {
      ...space,
      shape,
      choice: storageBuffer(device, choiceBytes, 'decode choice'),
      logits: storageBuffer(device, MAX_DECODE_BATCH * shape.logitsStride * 4, 'decode router logits'),
    }
    const guesses = { sources: ahead, least: tuning.TRUST, leastSpare: tuning.TRUST_SPARE }
    const { numExperts: experts } = config
    // What is guessed is read into the memory nearest to the disk.
    this.guessed = parts.host ?? parts.slots
    this.readAhead = ahead > 0 ? new ReadAhead(this.guessed, { layers, experts, k, ...guesses }) : null
    this.guessed.onRead = () => this.readAhead?.readSpare()
    this.governor = new PrefetchGovernor(this.readAhead !== null)
    this.host = parts.host
    const rowBytes = config.hiddenSize * 4
    this.hostRows = storageBuffer(device, this.host === null ? 0 : MAX_DECODE_BATCH * rowBytes, 'host rows')
    this.winnersAt = STATUS_BYTES + this.space.choice.size
    this.mixingAt = this.winnersAt + MAX_DECODE_BATCH * 4
    this.hiddenAt = this.mixingAt + MAX_DECODE_BATCH * (k + 1) * 8
    const size = this.host === null ? this.mixingAt : this.hiddenAt + MAX_DECODE_BATCH * rowBytes
    const usage = bufferUsage.mapRead | bufferUsage.copyDst
    const readback = () => device.createBuffer({ label: 'decode readback', size, usage })
    this.readbacks = [readback(), readback()]
  }

  static async create(
    parts: LayerParts,
    weights: ResidentWeights,
    head: Head,
    profiler: Profiler | null,
    prefetch: boolean,
  ): Promise<DecodePass> {
    const { gpu, config } = parts
    const pass = await makeChecked(gpu.device, 'workspace', () => new DecodePass(parts, head, profiler, prefetch))
    const space = pass.space
    const splits = gpu.tuning.SPLITS
    const bytes = attentionPartsBytes(config, MAX_DECODE_BATCH, splits)
    const attentionParts = storageBuffer(gpu.device, bytes, 'attention parts')
    const own = { ...parts, space }
    pass.layerParts = own
    const ahead = pass.readAhead?.sources ?? 0
    const options = { splits, attentionParts, ahead }
    pass.layerOptions = options
    const project = {
      status: space.status,
      outStride: config.vocabSize,
      norm: { weight: weights.norm, eps: config.rmsNormEps },
      label: 'lmHead',
    }
    const source = { rows: space.hidden, width: config.hiddenSize }
    const made = await Promise.all([
      addRowsOp(gpu, pass.hostRows, space.hidden, config.hiddenSize),
      embedOp(gpu, weights.embed, space.tokenInfo, space.hidden),
      matVecOp(gpu, weights.lmHead, space.hidden, head.logits, project),
      argmaxOp(gpu, head.logits, config.vocabSize, source, MAX_DECODE_BATCH, head.winners),
      decodeLayers(own, weights, options),
      weights.draftHead && headRowsOp(own, weights, 'single'),
    ])
    ;[pass.addRows, pass.embed, pass.project, pass.argmax] = made
    pass.layers = made[4].layers
    pass.rest = made[4].rest
    pass.headRows = made[5]
    return pass
  }

  /** Where the time of layers goes that the host helps with, in seconds. */
  get helpSeconds(): Readonly<Record<string, number>> {
    return this.helpTimes.seconds
  }

  /** Tokens of a run are guesses after the first. Winners are NOT_FINITE where something went wrong. */
  async run(size: StepSize, orders: DecodeOrders): Promise<DecodeResult> {
    const began = performance.now()
    const before = this.guessed.readsAsked
    const { isResident } = this
    const result = isResident ? await this.runResident(size, orders) : await this.runStreaming(size, orders)
    this.governor.stepDone((performance.now() - began) / 1000, this.guessed.readsAsked - before)
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
   * Submits the token after the one that was submitted last, whichever that will be: it is taken from the GPU's own memory. Null where
   * that cannot be now. Only for a single run.
   */
  submitNext(): Promise<DecodeResult> | null {
    const side = this.side ^ 1
    if (!this.isResident || this.profiler !== null || this.reading[side] !== null) return null
    const step = { tokens: 1, runs: 1, logits: false, known: 'best' } as const
    return this.submitResident(this.recordResident(step, side, [this.head.winners]), step)
  }

  /**
   * Submits a step of a token and of guesses that the GPU is about to make, whichever they will be: `from` has what they are
   * written to. Null where that cannot be now. The token is written, and nothing else is on its way.
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
    // Beside the GPU's work: what the last step says about who should be where, and the way of one expert there.
    this.slots.beginStep()
    this.slots.moveUp()
    const seen = await reading
    signal?.throwIfAborted()
    for (let layer = 0; layer < this.layerCount; layer++) this.touchChosen(seen.routing, layer, tokens)
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
    // Both on their way at once, and both back before anything else happens: the head's memory is used again.
    const read = () =>
      Promise.all([this.read(step.tokens, side), takeLogits && this.head.takeRows(step.tokens, takeLogits)])
    const reading = this.gpu.waits.until(kindOf(step, 0), read).then(([seen]) => seen)
    const ended = () => {
      this.reading[side] = null
    }
    this.reading[side] = reading.then(ended, ended)
    return reading
  }

  /** A whole step whose experts are all in slots. `from`: each has a token that the GPU knows; they are the step's last ones. */
  private recordResident(size: ResidentStep, side: number, from: readonly GPUBuffer[] = []): GPUCommandBuffer[] {
    const kind = kindOf(size, side)
    const lists = this.lists.get(kind)
    if (lists !== null) return lists.map(list => list.encode(this.gpu.device))
    // In timing mode each command is measured.
    const isKept = this.profiler === null
    const pieces = this.pieces(1, from.length > 0 || !isKept, isKept)
    for (const [i, token] of from.entries()) {
      const row = size.tokens - from.length + i
      pieces.recorder.copy(token, 0, this.space.tokenInfo, row * TOKEN_WORDS * 4, 4)
    }
    this.embed(pieces.recorder, size)
    for (const layer of this.layers) {
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
    const { tokens } = size
    const { device } = this.gpu
    const readAhead = this.slots.isAllResident || !this.governor.on ? null : this.readAhead
    const how = { ...size, predicts: readAhead !== null, logits: takeLogits !== undefined }
    let from = -1
    let to = this.reach(from)
    let holding: Promise<void> | null = null
    let helping: Promise<Float32Array> | null = null
    this.slots.gathers = true
    try {
      await this.reading[this.side] // of a token that nobody wanted
      let commands = this.record(from, to, how)
      for (;;) {
        // Only the last layer may leave experts out: what is missing before it has nobody who computes it.
        const leavesOut = this.leavesOut(to)
        if (leavesOut) device.queue.writeBuffer(this.space.status, 0, new Uint32Array([0, to + 1, 0, 0]))
        this.slots.submit(commands, to + 1)
        // Commands that are submitted have their experts: slots change hands in the order of the queue.
        this.slots.letGo()
        const submitted = performance.now()
        const reading = this.read(tokens, this.side)
        // Recorded while the GPU is at work: what comes next, if no miss is before it, or at it where that is likely.
        const next = this.reach(to)
        const expected = this.expected(leavesOut)
        const following = to < this.layerCount && this.profiler === null ? this.record(to, next, how, expected) : null
        // Beside the GPU's work, too: what the last step says about who should be where, and the way of one expert there.
        this.slots.beginStep()
        this.slots.moveUp()
        const seen = await reading
        const readAt = performance.now()
        signal?.throwIfAborted()
        const isMiss = seen.missed >= 0
        const reached = isMiss ? seen.missed : to
        const hits = Math.min(isMiss ? reached : reached + 1, this.layerCount)
        // The host's threads begin before anything else.
        const left = leavesOut && !isMiss ? this.left(seen, to, tokens) : []
        if (isMiss && this.host !== null) helping = this.help(this.host, reached, seen, size, signal)
        else if (left.length > 0) helping = (this.host as HostExperts).compute(to, seen.hidden, left, signal)
        helping?.catch(() => {}) // awaited below
        for (let layer = from + 1; layer < hits; layer++) {
          const chosen = this.chosen(seen.routing, layer, tokens)
          readAhead?.judge(layer, chosen)
          if (layer === to) for (const { expert } of left) chosen.delete(expert)
          for (const expert of chosen) this.slots.touch(layer, expert)
        }
        // What is wanted now is asked for first, then what may be wanted soon; both are read at once.
        if (isMiss) {
          const chosen = this.chosen(seen.routing, reached, tokens)
          readAhead?.judge(reached, chosen)
          if (this.host === null) holding = this.slots.hold(reached, chosen, signal)
          holding?.catch(() => {}) // awaited below
        }
        const hasLeft = left.length > 0
        this.observe(Math.max(0, hits - from - (hasLeft ? 2 : 1)), isMiss || hasLeft)
        if (reached === this.layerCount) return seen
        if (readAhead !== null) {
          const guesses = this.guesses(seen.routing, reached, tokens)
          for (const [ahead, choice] of guesses.entries()) readAhead.guess(reached + 1 + ahead, ahead, choice)
          readAhead.readSpare()
        }
        from = reached
        const isNext = reached === to
        to = isNext ? next : this.reach(from)
        const begin = helping !== null ? 'add' : leavesOut && !isMiss ? 'after' : 'choose'
        const isPrepared = isNext && following !== null && begin === expected
        commands = isPrepared ? following : this.record(from, to, how, begin)
        if (helping !== null) {
          const recorded = performance.now()
          this.host?.spin()
          const rows = await helping
          helping = null
          signal?.throwIfAborted()
          const computed = performance.now()
          device.queue.writeBuffer(this.hostRows, 0, rows)
          this.helpTimes.add(readAt - submitted, recorded - readAt, computed - recorded)
        }
        if (holding !== null) {
          await holding
          holding = null
          device.queue.writeBuffer(this.space.status, 0, NO_MISS)
        }
      }
    } finally {
      this.slots.letGo()
      await helping?.catch(() => {}) // its memory is used again
      readAhead?.forget()
      this.slots.gathers = false
    }
  }

  /**
   * Lets the host compute a layer's missing experts and the GPU the others. Null where nothing is missing any more. Both
   * begin here, in one go: what the commands will find in slots and what the host takes are two halves of one choice.
   */
  private help(
    host: HostExperts,
    layer: number,
    seen: Seen,
    size: StepSize,
    signal: AbortSignal | undefined,
  ): Promise<Float32Array> | null {
    const { tokens } = size
    const { k } = this.space.shape
    const ranks = seen.weights.length / (2 * tokens)
    const pairs: HostPair[] = []
    for (let token = 0; token < tokens; token++) {
      for (let rank = 0; rank < k; rank++) {
        const expert = seen.routing[(layer * MAX_DECODE_BATCH + token) * k + rank]
        if (this.slots.isShown(layer, expert)) continue
        pairs.push({ token, expert, weight: seen.weights[(token * ranks + rank) * 2 + 1] })
      }
    }
    const computing = pairs.length > 0 ? host.compute(layer, seen.hidden, pairs, signal) : null
    // Only the commands below may leave experts out: what is missing later has nobody who computes it.
    const helped = pairs.length > 0 ? layer + 1 : 0
    this.gpu.device.queue.writeBuffer(this.space.status, 0, new Uint32Array([0, helped, 0, 0]))
    const onGpu = [...this.chosen(seen.routing, layer, tokens)].filter(expert => this.slots.isShown(layer, expert))
    if (computing === null) {
      for (const expert of onGpu) this.slots.touch(layer, expert)
      return null
    }
    const recorder = new Recorder(this.gpu.device, this.profiler)
    this.layers[layer].routing.choose(recorder, size)
    this.layers[layer].experts(recorder, size)
    this.slots.submit([recorder.finish() as GPUCommandBuffer], layer + 1)
    for (const expert of onGpu) this.slots.touch(layer, expert)
    return computing
  }

  /**
   * From a layer's experts, -1: from the embedding, to another layer's choice, or with all layers to the end of the
   * token. What is read back comes with the choice; the experts of a layer that may leave some out come after that.
   */
  private record(from: number, to: number, how: RunOptions, begin: Begin = 'choose'): GPUCommandBuffer[] {
    const { tokens, predicts } = how
    const size = how
    const pieces = this.pieces(from < 0 ? 1 : RESUMED_LAYERS)
    if (from < 0) this.embed(pieces.recorder, size)
    for (let layer = Math.max(0, from); layer <= to && layer < this.layerCount; layer++) {
      const ops = this.layers[layer]
      const routing = predicts ? ops.routingAhead : ops.routing
      const { recorder } = pieces
      if (layer === from && begin !== 'choose') {
        if (begin === 'add') this.addRows(recorder, size)
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
    if (this.leavesOut(to)) {
      const recorder = new Recorder(this.gpu.device, null)
      this.layers[to].experts(recorder, size)
      commands.push(recorder.finish() as GPUCommandBuffer)
    }
    return commands
  }

  /** All after the last layer with experts. */
  private recordEnd(recorder: Recorder, size: StepSize & { readonly logits: boolean }, side: number): void {
    this.rest(recorder, size)
    this.project(recorder, size)
    this.argmax(recorder, size)
    this.headRows?.(recorder, size)
    recorder.copy(this.head.winners, 0, this.readbacks[side], this.winnersAt, size.tokens * 4)
    this.recordCopies(recorder, size.tokens, side)
    if (size.logits) this.head.recordRows(recorder, size.tokens)
  }

  private recordCopies(recorder: Recorder, tokens: number, side: number): void {
    const { choice, status, mixing, hidden } = this.space
    const readback = this.readbacks[side]
    recorder.copy(status, 0, readback, 0, STATUS_BYTES)
    recorder.copy(choice, 0, readback, STATUS_BYTES, choice.size)
    if (this.host === null) return
    recorder.copy(mixing, 0, readback, this.mixingAt, this.mixingBytes(tokens))
    recorder.copy(hidden, 0, readback, this.hiddenAt, tokens * this.config.hiddenSize * 4)
  }

  /** Whether the experts of the last layer are computed at once, those aside that the host computes. */
  private leavesOut(to: number): boolean {
    return this.host !== null && this.profiler === null && to < this.layerCount
  }

  /** How the commands after these will begin, most likely. */
  private expected(leavesOut: boolean): Begin {
    if (this.host !== null && this.missRate > 0.5) return 'add'
    return leavesOut ? 'after' : 'choose'
  }

  /** What a layer's choice has left to the host. */
  private left(seen: Seen, layer: number, tokens: number): HostPair[] {
    const { k } = this.space.shape
    const { routing } = seen
    const row = routing.length - MAX_DECODE_BATCH * k
    const weights = new Float32Array(routing.buffer, routing.byteOffset + row * 4, tokens * k)
    const pairs: HostPair[] = []
    for (let token = 0; token < tokens; token++) {
      for (let rank = 0; rank < k; rank++) {
        const at = token * k + rank
        if (routing[row + at] === NOT_LEFT) continue
        pairs.push({ token, expert: routing[layer * MAX_DECODE_BATCH * k + at], weight: weights[at] })
      }
    }
    return pairs
  }

  // The next token's commands are the same as this one's: they are recorded while the GPU is busy with this one. For the other side, too,
  // since a step of another kind may come between.
  private prepare(size: ResidentStep, from: readonly GPUBuffer[] = []): void {
    const side = [this.side ^ 1, this.side].find(each => !this.prepared.has(kindOf(size, each)))
    if (side !== undefined) this.prepared.put(kindOf(size, side), this.recordResident(size, side, from))
  }

  /** Each expert once. By hand: with every token a set for each layer is half of all the garbage there is. */
  private touchChosen(routing: Uint32Array, layer: number, tokens: number): void {
    const { k } = this.space.shape
    const first = layer * MAX_DECODE_BATCH * k
    for (let i = first; i < first + tokens * k; i++) {
      if (routing.indexOf(routing[i], first) === i) this.slots.touch(layer, routing[i])
    }
  }

  private chosen(routing: Uint32Array, layer: number, tokens: number): Set<number> {
    const { k } = this.space.shape
    const at = layer * MAX_DECODE_BATCH * k
    return new Set(routing.subarray(at, at + tokens * k))
  }

  /** What the layer's commands have guessed for the layers after it. */
  private guesses(routing: Uint32Array, layer: number, tokens: number): Uint32Array[] {
    const { k } = this.space.shape
    return Array.from({ length: this.layers[layer].routingAhead.ahead }, (_, i) => {
      const at = (this.config.expertLayers.length + i) * MAX_DECODE_BATCH * k
      return routing.subarray(at, at + tokens * k)
    })
  }

  private async read(tokens: number, side: number): Promise<Seen> {
    const rows = tokens * this.config.hiddenSize
    const end = this.host === null ? this.mixingAt : this.hiddenAt + rows * 4
    const bytes = await readMapped(this.readbacks[side], end)
    const words = new Uint32Array(bytes)
    await this.profiler?.collect()
    const helps = this.host !== null
    return {
      missed: words[0] - 1,
      routing: words.subarray(STATUS_BYTES / 4, this.winnersAt / 4),
      winners: words.slice(this.winnersAt / 4, this.winnersAt / 4 + tokens),
      weights: new Float32Array(bytes, this.mixingAt, helps ? this.mixingBytes(tokens) / 4 : 0),
      hidden: new Float32Array(bytes, helps ? this.hiddenAt : 0, helps ? rows : 0),
    }
  }

  /** Slots and weights of a layer's ranks, the shared expert's among them where it has a slot. */
  private mixingBytes(tokens: number): number {
    const ranks = this.space.shape.k + (this.slots.sharedSlot(0) === null ? 0 : 1)
    return tokens * ranks * 8
  }

  /** How far commands go that begin at a layer's experts: most of the way to the next miss, as misses went of late. */
  private reach(from: number): number {
    if (this.missRate * this.layerCount < 0.5 || this.slots.isAllResident) return this.layerCount
    return Math.min(this.layerCount, from + Math.max(1, Math.round(NEARER / this.missRate)))
  }

  private observe(layers: number, missed: boolean): void {
    const fade = 0.98 ** (layers + (missed ? 1 : 0))
    this.missRate = this.missRate * fade + (missed ? 1 - fade ** (1 / (layers + 1)) : 0)
  }
}

function kindOf({ tokens, runs, logits, known }: ResidentStep, side: number): string {
  return `${tokens} ${runs} ${logits} ${known} ${side}`
}
