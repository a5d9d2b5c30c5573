// One sequence and its calls in order. Everything that changes state goes through one queue, so a second call waits for the
// first; what is wrong with a call is thrown before anything changes. Where the sequence is and can go back to is its timeline;
// what is evaluated when, together with other contexts, is the scheduler's decision; the math is the backend's.
import {
  type Backend,
  MOST_GUESSES,
  type ProbeRequest,
  type ProbeResult,
  type SequenceState,
  type StateImport,
  type StepOutput,
  type StepRun,
} from '../backends/backend.js'
import {
  ClosedError,
  ContextLimitError,
  NonFiniteError,
  type NonFinitePlace,
  OptionError,
  PositionError,
  SnapshotError,
  TokenError,
} from '../base/errors.js'
import { joinSignals } from '../base/joinSignals.js'
import { areFinite } from '../model/floats.js'
import type {
  CheckOptions,
  ContextOptions,
  EvalOptions,
  EvaluateOptions,
  Evaluation,
  GuessOptions,
  PromptOptions,
  TokenOptions,
} from './contextOptions.js'
import { GatheredOutputs } from './gatheredOutputs.js'
import type { Scheduler } from './scheduler.js'
import {
  checkSnapshot,
  decodeLayers,
  plainBytes,
  readSnapshot,
  type StateReader,
  snapshotSize,
  wholeSnapshot,
  writeSnapshot,
} from './snapshot.js'
import { type KeptState, Timeline, tokensDiffer } from './state.js'

/** What a context needs of its model. */
export interface ContextHost {
  readonly backend: Backend
  readonly scheduler: Scheduler
  readonly contextLength: number
  /** Where a step over `tokens`, after what the sequence holds, stopped being finite. */
  locateNonFinite(sequence: SequenceState, tokens: readonly number[], signal: AbortSignal): Promise<NonFinitePlace>
  contextClosed(context: Context): void
}

const DEFAULT_MAX_CHECKPOINTS = 4

export class Context {
  private readonly timeline: Timeline
  private readonly closing = new AbortController()
  private queue: Promise<unknown> = Promise.resolve()

  constructor(
    private readonly host: ContextHost,
    options: ContextOptions = {},
  ) {
    const most = checkMaxCheckpoints(options.maxCheckpoints ?? DEFAULT_MAX_CHECKPOINTS)
    this.timeline = new Timeline(host.backend.createSequence(), host.backend.config.vocabSize, most)
  }

  /** Evaluated tokens. */
  get length(): number {
    return this.timeline.length
  }

  /** A copy; -1 where a snapshot came without its tokens. */
  get tokens(): number[] {
    return this.timeline.tokens
  }

  /** Positions with a checkpoint, ascending. */
  get checkpoints(): number[] {
    return this.timeline.checkpoints.positions
  }

  get maxCheckpoints(): number {
    return this.timeline.checkpoints.max
  }

  /** Lowering it evicts at the next `checkpoint()`. */
  set maxCheckpoints(max: number) {
    this.timeline.checkpoints.max = checkMaxCheckpoints(max)
  }

  /** Memory of this sequence and its checkpoints, in bytes. */
  get memoryBytes(): number {
    return this.timeline.bytes
  }

  /** Evaluates `tokens` after what is there. Returns the logits of the last one; null for no tokens. */
  async evalPrompt(tokens: ArrayLike<number>, options: PromptOptions = {}): Promise<Float32Array | null> {
    const { start, signal, onProgress } = options
    return (await this.evaluate(tokens, { start, signal, onProgress })).logits
  }

  /** Evaluates one token and returns its logits. */
  async evalToken(token: number, options: TokenOptions = {}): Promise<Float32Array> {
    const { into } = options
    const { vocabSize } = this.host.backend.config
    if (into && into.length !== vocabSize) throw new OptionError('into', `${into.length} values`, `${vocabSize}`)
    const { logits } = await this.enqueue(() => {
      this.checkTokens([token])
      return this.advance([token], 'decode', 'last', options)
    })
    return logits as Float32Array
  }

  /** Evaluates one token and returns the id of the best next one, without moving logits. */
  async evalTokenGreedy(token: number, options: EvalOptions = {}): Promise<number> {
    const { argmax } = await this.enqueue(() => {
      this.checkTokens([token])
      return this.advance([token], 'decode', 'argmax', options)
    })
    return argmax as number
  }

  /** Up to `count` guesses at what follows `token`, which is not evaluated yet. Changes nothing; none where there is no head. */
  draft(token: number, count: number, options: GuessOptions = {}): Promise<readonly number[]> {
    return this.enqueue(async () => {
      this.checkToken(token)
      const room = this.host.contextLength - this.length - 1
      const fitting = Math.min(count, room, MOST_GUESSES)
      if (this.host.backend.draft === undefined || fitting < 1) return []
      const { choose } = options
      const { text } = this.timeline
      return await this.withSignal(options.signal, signal =>
        this.host.scheduler.draft({ sequence: this.sequence, token, count: fitting, text, choose, signal }),
      )
    })
  }

  /** Evaluates a token together with guesses after it, and keeps what `keep` says; returns how many tokens that is. */
  evalGuesses(tokens: readonly number[], options: CheckOptions): Promise<number> {
    return this.enqueue(async () => {
      this.checkTokens(tokens)
      const before = this.length
      let failure: { error: unknown } | null = null
      const keep: CheckOptions['keep'] = async rows => {
        try {
          return await options.keep(rows)
        } catch (error) {
          failure = { error } // the step ends well all the same, with the token that was no guess
          return 1
        }
      }
      await this.advance(tokens, 'decode', options.output, { signal: options.signal, keep })
      if (failure) throw (failure as { error: unknown }).error
      return this.length - before
    })
  }

  /** The lower-level `evalPrompt`: logits of every token or none, routing. */
  evaluate(tokens: ArrayLike<number>, options: EvaluateOptions = {}): Promise<Evaluation> {
    const list = Array.from(tokens)
    return this.enqueue(async () => {
      if (options.start !== undefined && options.start !== this.length) {
        throw new PositionError(options.start, `${this.length}, the length of the context`)
      }
      this.checkTokens(list)
      if (list.length === 0) return { logits: null, argmax: null, routing: [] }
      return this.advance(list, 'prompt', options.logits ?? 'last', options)
    })
  }

  /** Back to the empty sequence; drops all checkpoints. */
  clear(): Promise<void> {
    return this.enqueue(() => this.timeline.clear())
  }

  /** Stores the state at the current position and returns the position. */
  checkpoint(): Promise<number> {
    return this.enqueue(async () => {
      await this.timeline.checkpoint()
      return this.length
    })
  }

  /** Exactly the state that was stored at `position`; returns the logits there where they are known. */
  restore(position: number): Promise<Float32Array | null> {
    return this.enqueue(async () => {
      await this.timeline.restore(position)
      return this.timeline.logits
    })
  }

  /**
   * Exactly the state after the first `position` tokens, from the nearest earlier checkpoint by evaluating the tokens from
   * there again. Returns the logits there where they are known or were computed. When that fails in the middle (an abort, a
   * failed read), the context is as it was, with all its checkpoints.
   */
  rewind(position: number, options: EvalOptions = {}): Promise<Float32Array | null> {
    return this.enqueue(async () => {
      if (!Number.isInteger(position) || position < 0 || position > this.length) {
        throw new PositionError(position, `an integer from 0 to ${this.length}, the length of the context`)
      }
      const { signal } = options
      const replay = (tokens: readonly number[]) => this.advance(tokens, 'prompt', 'last', { signal })
      if (position < this.length) await this.timeline.rewind(position, replay)
      return this.timeline.logits
    })
  }

  /** Forgets which experts the last token used, so that nothing is read ahead for it. */
  clearPredictions(): void {
    this.sequence.clearPredictions()
  }

  /** Bytes that `saveState` returns. */
  stateSize(): number {
    return snapshotSize(this.host.backend.config, this.length)
  }

  /** The state as MFLX version 1, in one piece; one that is too long for that can be had by `saveStateTo`. */
  saveState(): Promise<Uint8Array> {
    return this.readState(state => wholeSnapshot(state, this.host.backend.config))
  }

  /** The same bytes, of any length, piece by piece. The next piece is made when `sink` is done with the last. */
  saveStateTo(sink: (piece: Uint8Array) => void | Promise<void>): Promise<void> {
    return this.readState(state => writeSnapshot(state, this.host.backend.config, sink))
  }

  /** Lets `work` copy the state, which stays as it is until that is done. */
  readState<T>(work: (state: StateReader) => Promise<T>): Promise<T> {
    return this.enqueue(() => work(this.sequence))
  }

  /** `loadState` from pieces of any size, which may come slowly: nothing has changed before the last one was right. */
  loadStateFrom(source: AsyncIterable<Uint8Array>, tokens?: ArrayLike<number>, logits?: Float32Array): Promise<void> {
    const list = tokens && Array.from(tokens)
    const kept = logits?.slice() ?? null
    return this.enqueue(async () => {
      this.checkKnown(list, kept)
      const { config } = this.host.backend
      const limits = { contextLength: this.host.contextLength, knownLength: list?.length ?? 0 }
      const begin = (length: number) => this.sequence.beginImport(length)
      const { length, incoming } = await readSnapshot(source, config, limits, begin)
      await this.timeline.takeOver(incoming, length, list, kept)
    })
  }

  /** Becomes a state of known tokens that `fill` puts together; as it was where that fails. */
  importState(tokens: readonly number[], fill: (into: StateImport) => Promise<void>): Promise<void> {
    const list = [...tokens]
    return this.enqueue(async () => {
      if (list.length > this.host.contextLength) throw new ContextLimitError(list.length, this.host.contextLength)
      this.checkKnown(list, null)
      const incoming = await this.sequence.beginImport(list.length)
      try {
        await fill(incoming)
      } catch (error) {
        incoming.drop()
        throw error
      }
      await this.timeline.takeOver(incoming, list.length, list, null)
    })
  }

  /**
   * Becomes a saved state; drops all checkpoints. A bad snapshot changes nothing. Without its tokens the context works, but
   * cannot be rewound to a position inside it. `logits`: those of the last token, where the caller kept them. `bytes` must
   * not change until this is done.
   */
  loadState(bytes: Uint8Array, tokens?: ArrayLike<number>, logits?: Float32Array): Promise<void> {
    bytes = plainBytes(bytes)
    const list = tokens && Array.from(tokens)
    const kept = logits?.slice() ?? null
    return this.enqueue(async () => {
      const { config } = this.host.backend
      const length = checkSnapshot(bytes, config, this.host.contextLength) ?? list?.length ?? 0
      if (list && list.length !== length) throw tokensDiffer(list.length, length)
      this.checkKnown(list, kept)
      await this.sequence.importLayers(length, decodeLayers(bytes, config))
      await this.timeline.startFrom(length, list, kept)
    })
  }

  /** The state as it is now, for later or for other contexts; the caller must release it. */
  keep(): Promise<KeptState> {
    return this.enqueue(() => this.timeline.keep())
  }

  /** Becomes a kept state of this or another context of the model; drops all checkpoints. Returns its logits if known. */
  adopt(kept: KeptState): Promise<Float32Array | null> {
    return this.enqueue(async () => {
      await this.timeline.adopt(kept)
      return this.timeline.logits
    })
  }

  /** Evaluates tokens, or hidden rows through one layer, after the current state, and tells what happened inside. */
  probe(request: ProbeRequest): Promise<ProbeResult> {
    return this.enqueue(async () => {
      const { config } = this.host.backend
      if ('tokens' in request) {
        if (request.tokens.length === 0) throw new OptionError('tokens', 'none', 'at least one token')
        this.checkTokens(request.tokens)
        for (const layer of request.layers ?? []) checkLayer(layer, config.numLayers)
      } else {
        checkLayer(request.layer, config.numLayers)
        const { length } = request.hidden
        if (length === 0 || length % config.hiddenSize !== 0) {
          throw new OptionError('hidden', `${length} values`, `rows of ${config.hiddenSize}`)
        }
      }
      return this.host.scheduler.exclusive(() => this.host.backend.probe(this.sequence, request))
    })
  }

  /** Stops what runs, refuses what waits, and gives the memory back. */
  close(): Promise<void> {
    if (this.closing.signal.aborted) return this.queue.then(() => {})
    this.closing.abort(new ClosedError('context'))
    const released = this.queue.then(() => {
      this.timeline.release()
      this.host.contextClosed(this)
    })
    this.queue = released
    return released
  }

  private get sequence(): SequenceState {
    return this.timeline.sequence
  }

  /** Runs `work` when all earlier calls are done. */
  private enqueue<T>(work: () => Promise<T>): Promise<T> {
    const { signal } = this.closing
    if (signal.aborted) return Promise.reject(signal.reason)
    const result = this.queue.then(() => {
      signal.throwIfAborted()
      return work()
    })
    this.queue = result.catch(() => {})
    return result
  }

  private async advance(
    tokens: readonly number[],
    phase: StepRun['phase'],
    output: StepRun['output'],
    options: EvaluateOptions & TokenOptions & Partial<Pick<CheckOptions, 'keep'>>,
  ): Promise<Evaluation> {
    const { into, routing, onHidden, keep } = options
    const gathered = new GatheredOutputs(output, options, tokens.length)
    const { vocabSize } = this.host.backend.config
    const onCommit = (part: readonly number[], result: StepOutput) => {
      // Of guesses there are logits for more tokens than stay.
      const { logits } = result
      this.timeline.advanced(part, keep && logits ? logits.subarray(0, part.length * vocabSize) : logits)
      gathered.add(part.length, result, this.length)
    }
    await this.withSignal(options.signal, async signal => {
      try {
        const how = { phase, output, into, keep, routing, hidden: onHidden !== undefined }
        await this.host.scheduler.evaluate({ sequence: this.sequence, tokens, ...how, signal, onCommit })
      } catch (error) {
        const rest = tokens.slice(gathered.done)
        throw error instanceof NonFiniteError ? await this.explain(error, rest, signal) : error
      }
    })
    return gathered.finish()
  }

  /** With a signal that closing aborts, too. */
  private async withSignal<T>(own: AbortSignal | undefined, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const joined = own && joinSignals(own, this.closing.signal)
    try {
      return await work(joined?.signal ?? this.closing.signal)
    } finally {
      joined?.release()
    }
  }

  /** The error with its place, where that can be found. `tokens`: what was not evaluated. */
  private async explain(
    error: NonFiniteError,
    tokens: readonly number[],
    signal: AbortSignal,
  ): Promise<NonFiniteError> {
    const { chunkTokens } = this.host.backend
    const step = tokens.slice(0, chunkTokens - (this.length % chunkTokens))
    const place = await this.host.locateNonFinite(this.sequence, step, signal).catch(() => null)
    return place === null ? error : new NonFiniteError(place)
  }

  /** What the caller knows of a state must make sense. */
  private checkKnown(tokens: readonly number[] | undefined, logits: Float32Array | null) {
    const { vocabSize } = this.host.backend.config
    for (const token of tokens ?? []) this.checkToken(token)
    if (logits && logits.length !== vocabSize) {
      throw new OptionError('logits', `${logits.length} values`, `${vocabSize}, the vocabulary`)
    }
    if (logits && !areFinite(logits)) throw new SnapshotError('NotFinite', 'the logits are not finite')
  }

  private checkTokens(tokens: readonly number[]) {
    for (const token of tokens) this.checkToken(token)
    const end = this.length + tokens.length
    if (end > this.host.contextLength) throw new ContextLimitError(end, this.host.contextLength)
  }

  private checkToken(token: number) {
    const { vocabSize } = this.host.backend.config
    if (!Number.isInteger(token) || token < 0 || token >= vocabSize) throw new TokenError(token, vocabSize)
  }
}

function checkMaxCheckpoints(max: number): number {
  if (!Number.isInteger(max) || max < 0) throw new OptionError('maxCheckpoints', max, 'an integer from 0')
  return max
}

function checkLayer(layer: number, layers: number) {
  if (!Number.isInteger(layer) || layer < 0 || layer >= layers) {
    throw new OptionError('layer', layer, `an integer from 0 to ${layers - 1}`)
  }
}
