// How runs become passes: a step takes pages and state slots for its runs, decodes some in batches,
// evaluates the others as prompts, and commits at the very end. Drafts and probes use the same
// passes and commit nothing. One call at a time: workspace, page table and slots are shared.
import { NonFiniteError } from '../../base/errors.js'
import type { GpuDevice } from '../../gpu/device/gpuDevice.js'
import type { StepSize } from '../../gpu/device/op.js'
import { readBuffer } from '../../gpu/device/readBuffer.js'
import type { KvPool } from '../../gpu/memory/kvPool.js'
import type { StatePool } from '../../gpu/memory/statePool.js'
import type { ModelConfig } from '../../model/config.js'
import { NOT_FINITE } from '../../ops/argmax/argmax.gpu.js'
import type {
  DraftOutput,
  DraftRequest,
  ProbeRequest,
  ProbeResult,
  SequenceState,
  StepOptions,
  StepOutput,
  StepRun,
} from '../backend.js'
import { joinProbes } from '../joinProbes.js'
import type { ChunkPace } from './chunkSizer.js'
import type { DecodePass, DecodeResult } from './decode/decodePass.js'
import type { Head } from './decode/lmHead.js'
import { type ActiveRun, LookAhead, RoundAhead, SubmittedAhead } from './decode/pipelinedStep.js'
import type { OnGuessing } from './draft/draftRunner.js'
import { type DraftWays, guessAll } from './draft/gpuDrafter.js'
import type { StepSlots } from './experts/residency.js'
import { probeLayers } from './gpuProbe.js'
import type { GpuSequence } from './memory/gpuSequence.js'
import { StepInfo } from './memory/stepInfo.js'
import { LONGEST_RUN, MAX_DECODE_BATCH, type Workspace } from './memory/workspace.js'
import type { PromptPass } from './prefill/prefillPass.js'
import { type DecodePiece, decodeBatches, partOf, RunPlans } from './runPlans.js'

/**
 * Tokens without guesses before the next is decoded ahead: more than it takes to compare them with
 * tokens with guesses.
 */
const DRAFTING_PATIENCE = 4

/** What steps are evaluated with. */
export interface StepParts {
  readonly states: StatePool
  readonly kv: KvPool
  readonly space: Workspace
  readonly slots: StepSlots
  readonly prompt: PromptPass
  readonly decode: DecodePass
  readonly head: Head
  readonly drafts: DraftWays | null // null: no head for drafts is loaded
  readonly pace: ChunkPace
}

/** What came out of a run. */
interface RunRows {
  readonly logits: Float32Array | null // [rows, vocab], those that are wanted
  readonly argmax: Int32Array // of all tokens of a decode, of a prompt's last one
  readonly routing: Uint16Array | null
  readonly routerWeights?: Float32Array // of prompts, where asked for
  readonly hidden?: Float32Array
}

export class RunSteps {
  readonly counts = { promptTokens: 0, decodeTokens: 0, steps: 0, seconds: 0 }
  private readonly states: StatePool
  private readonly space: Workspace
  private readonly slots: StepSlots
  private readonly prompt: PromptPass
  private readonly decode: DecodePass
  private readonly head: Head
  private readonly drafts: DraftWays | null
  private readonly pace: ChunkPace
  private readonly info: StepInfo
  private readonly plans: RunPlans
  private readonly ahead: LookAhead
  private readonly rounds: RoundAhead

  constructor(
    private readonly opened: GpuDevice,
    private readonly config: ModelConfig,
    parts: StepParts,
  ) {
    const { states, kv, space, decode } = parts
    this.states = states
    this.space = space
    this.slots = parts.slots
    this.prompt = parts.prompt
    this.decode = decode
    this.head = parts.head
    this.drafts = parts.drafts
    this.pace = parts.pace
    this.info = new StepInfo(opened.device, config, space, kv)
    this.plans = new RunPlans(states, kv)
    const patience = parts.drafts === null ? 1 : DRAFTING_PATIENCE
    const submitted = () => new SubmittedAhead(states, kv, this.info)
    this.ahead = new LookAhead(submitted(), this.info, decode, patience)
    this.rounds = new RoundAhead(submitted(), decode)
  }

  /** What was submitted before it was asked for is not wanted. `sequence`: of this one. */
  drop(sequence?: GpuSequence): void {
    this.ahead.drop(sequence)
    this.rounds.drop(sequence)
  }

  /** Evaluates runs and commits what is kept of them, or changes nothing. */
  async run(runs: readonly StepRun[], options: StepOptions): Promise<StepOutput[]> {
    options.signal?.throwIfAborted()
    const began = performance.now()
    const token = this.ahead.claim(options.routing === 'weights' ? [] : runs) // the prompt's kernels tell those
    const claimed = this.rounds.claim(runs) ?? token
    const active = claimed === null ? await this.takeFor(runs) : [claimed]
    try {
      const rows = await this.evaluate(runs, active, options)
      // Nothing can fail from here on.
      const kept = await Promise.all(runs.map(({ keep, tokens }, i) => keep?.(rows[i]) ?? tokens.length))
      for (const [i, run] of active.entries()) this.commit(run, kept[i])
      this.count(runs, kept, performance.now() - began)
      return rows.map(({ argmax, ...inside }, i) => {
        const at = runs[i].keep ? kept[i] - 1 : argmax.length - 1
        return { ...inside, argmax: runs[i].output === 'none' ? null : argmax[at], kept: kept[i] }
      })
    } catch (error) {
      this.plans.release(active)
      throw error
    }
  }

  private async takeFor(runs: readonly StepRun[]): Promise<ActiveRun[]> {
    // States that are kept may take all there are, and nothing would be computed ahead before
    // memory grows for something else.
    if (this.slots.isAllResident && this.ahead.isLikely(runs)) await this.states.offer(2)
    return await this.plans.plan(runs)
  }

  /** The state after the last token that is kept becomes the sequence's; the others are free. */
  private commit({ sequence, states, stateOut, firstRow }: ActiveRun, kept: number): void {
    const own = states?.[kept - 1] ?? stateOut
    for (const slot of states ?? []) if (slot !== own) this.states.release(slot)
    sequence.commit(kept, own, this.drafts && { firstRow })
  }

  /** Drafts tokens, and submits the step that verifies them early where that is likely to come. */
  async guess(drafts: DraftWays, requests: readonly DraftRequest[], { signal }: StepOptions): Promise<DraftOutput[]> {
    signal?.throwIfAborted()
    const wanted = requests.map(({ sequence, count }) => ({ sequence: sequence as GpuSequence, tokens: count }))
    try {
      await this.plans.reservePages(wanted)
      for (const { sequence, tokens } of wanted) sequence.table.reserve(sequence.length, tokens)
      const [first] = requests
      const begin: OnGuessing = tokens => this.rounds.begin(first, tokens, this.decodeBatch)
      const onSubmitted = this.rounds.isLikely(requests) ? begin : undefined
      const outputs = await guessAll(drafts, () => this.slots.isAllResident, requests, signal, onSubmitted)
      if (requests.length === 1) this.rounds.give(first, outputs[0].guesses)
      return outputs
    } catch (error) {
      this.rounds.drop()
      throw error
    } finally {
      for (const { sequence } of wanted) sequence.table.trim(sequence.length)
    }
  }

  /** Values inside the layers, for a sequence's next tokens or for given rows; commits nothing. */
  async probe(sequence: SequenceState, request: ProbeRequest): Promise<ProbeResult> {
    const { hiddenSize } = this.config
    const own = sequence as GpuSequence
    const count = 'tokens' in request ? request.tokens.length : request.hidden.length / hiddenSize
    const results: ProbeResult[] = []
    // Chunk after chunk, each from the state that the one before has written; nothing is committed.
    let stateIn = own.state
    const taken: number[] = []
    try {
      const chunkTokens = this.pace.tokens
      for (let start = 0; start < count; start += chunkTokens) {
        const end = Math.min(count, start + chunkTokens)
        const tokens = 'tokens' in request ? request.tokens.slice(start, end) : new Array<number>(end - start).fill(0)
        await this.states.reserve(1)
        const stateOut = this.states.take()
        taken.push(stateOut)
        await this.plans.reservePages([{ sequence: own, tokens: end }])
        own.table.reserve(own.length, end)
        const run = { tokens, position: own.length + start, pages: own.table.pages, stateIn, stateOut }
        this.info.write([run])
        const rows =
          'hidden' in request
            ? { layer: request.layer, hidden: request.hidden.subarray(start * hiddenSize, end * hiddenSize) }
            : { tokens, layers: request.layers, end: request.end }
        results.push(await probeLayers(this.opened.device, this.config, this.space, this.prompt, this.head, rows))
        stateIn = stateOut
      }
    } finally {
      for (const slot of taken) this.states.release(slot)
      own.table.trim(own.length)
    }
    return joinProbes(results)
  }

  /** Decodes in batches, then all prompts together. Nothing is committed here. */
  private async evaluate(
    runs: readonly StepRun[],
    active: readonly ActiveRun[],
    options: StepOptions,
  ): Promise<RunRows[]> {
    const rows = new Array<RunRows>(runs.length)
    // What is asked about the inside of layers, the prompt's kernels tell.
    const isDecode = ({ phase, tokens, keep, hidden }: StepRun) =>
      phase === 'decode' && (Boolean(keep) || (tokens.length === 1 && !hidden && options.routing !== 'weights'))
    const decodes = [...runs.keys()].filter(i => isDecode(runs[i]))
    const prompts = [...runs.keys()].filter(i => !isDecode(runs[i]))
    this.slots.tick()
    for (const i of decodes) rows[i] = this.emptyRows(runs[i], options)
    const counts = decodes.map(i => runs[i].tokens.length)
    const longest = this.drafts === null ? 1 : LONGEST_RUN // kernels for several tokens of a run come with the head
    const alone = runs.length === 1 && this.ahead.isFor(runs[0]) ? runs[0] : null
    for (const batch of decodeBatches(counts, this.decodeBatch, longest)) {
      const own = batch.map(piece => ({ ...piece, run: decodes[piece.run] }))
      await this.evaluateDecodes(own, active, rows, alone, options)
    }
    if (prompts.length > 0) {
      const made = await this.evaluatePrompts(
        prompts.map(i => runs[i]),
        prompts.map(i => active[i]),
        options,
      )
      for (const [i, output] of made.entries()) rows[prompts[i]] = output
    }
    this.opened.check()
    return rows
  }

  /** Rows together in a batch: all of their experts have room at once. */
  private get decodeBatch(): number {
    const together = Math.floor(this.slots.leastSlots / this.space.shape.k)
    return Math.max(1, Math.min(MAX_DECODE_BATCH, this.head.rows, together))
  }

  private emptyRows(run: StepRun, { routing }: StepOptions): RunRows {
    const { moeLayers } = this.config
    const count = run.tokens.length
    return {
      logits: this.logitsOf(run, count),
      argmax: new Int32Array(count),
      routing: routing ? new Uint16Array(moeLayers.length * count * this.space.shape.k) : null,
    }
  }

  /** Where the logits of so many tokens go that a run wants; null: it wants none. */
  private logitsOf({ output, into }: StepRun, rows: number): Float32Array | null {
    if (output === 'none' || output === 'argmax') return null
    return output === 'last' && into ? into : new Float32Array(rows * this.config.vocabSize)
  }

  /** Fills the rows of some pieces of runs. */
  private async evaluateDecodes(
    pieces: readonly DecodePiece[],
    active: readonly ActiveRun[],
    rows: readonly RunRows[],
    alone: StepRun | null, // all that is in the step, of one token that the best is wanted of
    options: StepOptions,
  ): Promise<void> {
    // The head is computed for whoever does not want it too: it tells whether all is finite.
    const { winners, routing } = await this.decodeAll(pieces, active, rows, alone, options)
    if (winners.includes(NOT_FINITE)) throw new NonFiniteError()
    let row = 0
    for (const { run, first, count } of pieces) {
      const own = rows[run]
      own.argmax.set(winners.subarray(row, row + count), first)
      if (own.routing !== null) {
        const picks = this.routingOf(routing, MAX_DECODE_BATCH, row, count)
        putRouting(own.routing, picks, { layers: this.config.moeLayers.length, first, count, total: own.argmax.length })
      }
      row += count
    }
  }

  private decodeAll(
    pieces: readonly DecodePiece[],
    active: readonly ActiveRun[],
    rows: readonly RunRows[],
    alone: StepRun | null,
    { signal }: StepOptions,
  ): Promise<DecodeResult> {
    if (alone !== null) return this.ahead.decode(alone, active[0], signal)
    const tokens = pieces.reduce((sum, { count }) => sum + count, 0)
    const submitted = this.rounds.take(active[0])
    if (submitted !== null) return this.decode.finish(submitted, tokens, signal)
    this.info.write(pieces.map(piece => partOf(active[piece.run], piece)))
    const { vocabSize } = this.config
    const takeLogits = (logits: Float32Array) => {
      let row = 0
      for (const { run, first, count } of pieces) {
        rows[run].logits?.set(logits.subarray(row * vocabSize, (row + count) * vocabSize), first * vocabSize)
        row += count
      }
    }
    const wantsLogits = pieces.some(({ run }) => rows[run].logits !== null)
    return this.decode.run({ tokens, runs: pieces.length }, { signal, ...(wantsLogits && { takeLogits }) })
  }

  private async evaluatePrompts(runs: readonly StepRun[], active: readonly ActiveRun[], options: StepOptions) {
    const began = performance.now()
    this.info.write(active)
    const size = { tokens: active.reduce((sum, run) => sum + run.tokens.length, 0), runs: active.length }
    const recorder = this.prompt.recorder()
    this.prompt.embed(recorder, size)
    const last = () => this.head.recordEnd(recorder, size.tokens)
    await this.prompt.run(recorder, size, { signal: options.signal, last })
    // What comes out is on its way before it is known to be finite: the GPU does not wait for the
    // host to hear of that.
    const areFinite = this.head.areFinite()
    areFinite.catch(() => {}) // awaited below
    const reading = this.readOutputs(runs, active, size, options)
    reading.catch(() => {}) // awaited below
    const allFinite = await areFinite
    const outputs = await reading
    if (!allFinite) throw new NonFiniteError()
    options.signal?.throwIfAborted()
    this.prompt.addHeadRows(size)
    this.pace.took(size.tokens, performance.now() - began)
    return outputs
  }

  /** What comes out of a prompt's last layer. */
  private async readOutputs(
    runs: readonly StepRun[],
    active: readonly ActiveRun[],
    size: StepSize,
    options: StepOptions,
  ): Promise<RunRows[]> {
    const routing = options.routing ? await this.prompt.readRouting(size.tokens) : null
    const weights = options.routing === 'weights' ? await this.prompt.readWeights(size.tokens) : undefined
    const outputs: RunRows[] = []
    let row = 0
    for (const [i, run] of runs.entries()) {
      const count = active[i].tokens.length
      const end = row + count - 1
      const rows = run.output === 'all' ? Array.from({ length: count }, (_, t) => row + t) : [end]
      const logits = this.logitsOf(run, rows.length)
      const best = run.output === 'none' ? new Uint32Array(1) : await this.head.readBest(rows, logits)
      if (best.includes(NOT_FINITE)) throw new NonFiniteError()
      outputs.push({
        ...{ logits, argmax: Int32Array.from(best.subarray(-1)) },
        routing: routing && this.routingOf(routing, size.tokens, row, count),
        routerWeights: weights && this.shareOf(weights, size.tokens, row, count),
        hidden: run.hidden ? await this.readNormed(row, count) : undefined,
      })
      options.signal?.throwIfAborted()
      row += count
    }
    return outputs
  }

  /** Rows after the final norm, which `recordNorm` left. */
  private async readNormed(first: number, count: number): Promise<Float32Array> {
    const rowBytes = this.config.hiddenSize * 4
    const { values } = this.space.normed
    return new Float32Array(await readBuffer(this.opened.device, values, first * rowBytes, count * rowBytes))
  }

  private routingOf(all: ArrayLike<number>, tokens: number, first: number, count: number): Uint16Array {
    return Uint16Array.from(this.shareOf(all, tokens, first, count))
  }

  /** One run's share of [layers, tokens, K]: experts, which are small numbers, or their weights. */
  private shareOf(all: ArrayLike<number>, tokens: number, first: number, count: number): Float32Array {
    const { k } = this.space.shape
    const layers = this.config.moeLayers.length
    const own = new Float32Array(layers * count * k)
    for (let layer = 0; layer < layers; layer++) {
      for (let i = 0; i < count * k; i++) own[layer * count * k + i] = all[(layer * tokens + first) * k + i]
    }
    return own
  }

  private count(runs: readonly StepRun[], kept: readonly number[], ms: number): void {
    this.counts.steps++
    this.counts.seconds += ms / 1000
    for (const [i, { phase }] of runs.entries()) {
      this.counts[phase === 'prompt' ? 'promptTokens' : 'decodeTokens'] += kept[i]
    }
  }
}

/** Puts [layers, count, K] at tokens `first` of [layers, total, K]. */
function putRouting(
  all: Uint16Array,
  part: Uint16Array,
  { layers, first, count, total }: { layers: number; first: number; count: number; total: number },
): void {
  const k = part.length / (layers * count)
  for (let layer = 0; layer < layers; layer++) {
    all.set(part.subarray(layer * count * k, (layer + 1) * count * k), (layer * total + first) * k)
  }
}
