// One sequence: its tokens, its calls in order, its checkpoints, and exact rewind. Everything that changes state goes
// through one queue, so a second call waits for the first; what is wrong with a call is thrown before anything changes.
// What is evaluated when, together with other contexts, is the scheduler's decision; the math is the backend's.

import {
  type Backend,
  type HeldState,
  MOST_GUESSES,
  type ProbeRequest,
  type ProbeResult,
  type SequenceState,
  type StateImport,
  type StepOutput,
  type StepRun,
} from '../compute/backend.js'
import {
  ClosedError,
  ContextLimitError,
  NoCheckpointError,
  NonFiniteError,
  type NonFinitePlace,
  OptionError,
  PositionError,
  SnapshotError,
  TokenError,
  TokensUnknownError,
} from '../errors.js'
import { areFinite, joinFloats } from '../model/floats.js'
import { Checkpoints } from './checkpoints.js'
import type {
  CheckOptions,
  ContextOptions,
  EvalOptions,
  EvaluateOptions,
  Evaluation,
  GuessOptions,
  PromptOptions,
  RoutingChunk,
  TokenOptions,
} from './contextOptions.js'
import { joinSignals } from './joinSignals.js'
import { KeptState } from './keptState.js'
import { LastLogits } from './lastLogits.js'
import type { Scheduler } from './scheduler.js'
import { checkSnapshot, decodeLayers, encodeLayer, plainBytes, snapshotHeader, snapshotSize } from './snapshot.js'
import { readSnapshot, type StateReader, writeSnapshot } from './snapshotStream.js'

/** What a context needs of its model. */
export interface ContextHost {
  readonly backend: Backend
  readonly scheduler: Scheduler
  readonly contextLength: number
  /** Where a step over `tokens`, after what the sequence holds, stopped being finite. */
  locateNonFinite(sequence: SequenceState, tokens: readonly number[], signal: AbortSignal): Promise<NonFinitePlace>
  contextClosed(context: Context): void
}

const UNKNOWN_TOKEN = -1
const DEFAULT_MAX_CHECKPOINTS = 4
const LARGEST_BUFFER = 2 ** 32 // bytes, in every engine of today

export class Context {
  private readonly sequence: SequenceState
  private readonly saved: Checkpoints
  private readonly closing = new AbortController()
  private history: number[] = [] // [length]; UNKNOWN_TOKEN where a snapshot came without its tokens
  private readonly lastLogits: LastLogits
  /** The state that a snapshot without tokens brought: what later positions can be replayed from. */
  private base: HeldState | null = null
  private queue: Promise<unknown> = Promise.resolve()

  constructor(
    private readonly host: ContextHost,
    options: ContextOptions = {},
  ) {
    this.saved = new Checkpoints(checkMaxCheckpoints(options.maxCheckpoints ?? DEFAULT_MAX_CHECKPOINTS))
    this.sequence = host.backend.createSequence()
    this.lastLogits = new LastLogits(host.backend.config.vocabSize)
  }

  /** Evaluated tokens. */
  get length(): number {
    return this.history.length
  }

  /** A copy; -1 where a snapshot came without its tokens. */
  get tokens(): number[] {
    return [...this.history]
  }

  /** Positions with a checkpoint, ascending. */
  get checkpoints(): number[] {
    return this.saved.positions
  }

  get maxCheckpoints(): number {
    return this.saved.max
  }

  /** Lowering it evicts at the next `checkpoint()`. */
  set maxCheckpoints(max: number) {
    this.saved.max = checkMaxCheckpoints(max)
  }

  /** Memory of this sequence and its checkpoints, in bytes. */
  get memoryBytes(): number {
    return this.sequence.bytes + this.saved.bytes + (this.base?.bytes ?? 0)
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
      return await this.withSignal(options.signal, signal =>
        this.host.scheduler.draft({ sequence: this.sequence, token, count: fitting, choose, signal }),
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
    return this.enqueue(async () => {
      await this.sequence.clear()
      this.forget()
      this.history = []
      this.lastLogits.set(null)
    })
  }

  /** Stores the state at the current position and returns the position. */
  checkpoint(): Promise<number> {
    return this.enqueue(async () => {
      const held = await this.sequence.hold()
      this.saved.store(this.length, { held, logits: this.lastLogits.copy() })
      return this.length
    })
  }

  /** Exactly the state that was stored at `position`; returns the logits there where they are known. */
  restore(position: number): Promise<Float32Array | null> {
    return this.enqueue(async () => {
      if (!this.saved.has(position)) throw new NoCheckpointError(position, this.saved.positions)
      await this.restoreCheckpoint(position)
      return this.lastLogits.copy()
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
      if (position < this.length) await this.rewindTo(position, options.signal)
      return this.lastLogits.copy()
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
    return this.enqueue(async () => {
      const { config } = this.host.backend
      const size = snapshotSize(config, this.length)
      if (size > LARGEST_BUFFER) {
        const message = `${size} bytes do not fit into one buffer: use saveStateTo and loadStateFrom`
        throw new SnapshotError('TooLarge', message, { got: size, want: LARGEST_BUFFER })
      }
      const bytes = new Uint8Array(size)
      bytes.set(snapshotHeader(config))
      let offset = snapshotHeader(config).length
      for (let layer = 0; layer < config.numLayers; layer++) {
        for (const part of encodeLayer(await this.sequence.exportLayer(layer), this.length)) {
          bytes.set(part, offset)
          offset += part.length
        }
      }
      return bytes
    })
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
      await this.takeOver(incoming, length, list, kept)
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
      await this.takeOver(incoming, list.length, list, null)
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
      this.checkLength(length)
      await this.startFrom(list ?? new Array(length).fill(UNKNOWN_TOKEN), kept)
    })
  }

  /** The state as it is now, for later or for other contexts; the caller must release it. */
  keep(): Promise<KeptState> {
    return this.enqueue(
      async () => new KeptState(await this.sequence.hold(), [...this.history], this.lastLogits.copy()),
    )
  }

  /** Becomes a kept state of this or another context of the model; drops all checkpoints. Returns its logits if known. */
  adopt(kept: KeptState): Promise<Float32Array | null> {
    return this.enqueue(async () => {
      const { held, tokens, logits } = kept
      await this.sequence.restore(held)
      this.checkLength(tokens.length)
      await this.startFrom([...tokens], logits)
      return this.lastLogits.copy()
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
      this.forget()
      this.sequence.release()
      this.host.contextClosed(this)
    })
    this.queue = released
    return released
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
    const { into, routing, onProgress, onLogits, onHidden, keep } = options
    const hidden = onHidden !== undefined
    const chunks: Float32Array[] = []
    const picks: RoutingChunk[] = []
    let last: { logits: Float32Array | null; argmax: number | null } = { logits: null, argmax: null }
    let done = 0
    const { vocabSize } = this.host.backend.config
    const onCommit = (part: readonly number[], result: StepOutput) => {
      this.history.push(...part)
      done += part.length
      last = result
      this.lastLogits.set(keep && result.logits ? result.logits.subarray(0, part.length * vocabSize) : result.logits)
      if (routing && result.routing) picks.push(routingChunk(part.length, result, routing === 'weights'))
      if (result.hidden) onHidden?.(this.length - part.length, result.hidden)
      if (output === 'all' && result.logits) {
        if (onLogits) onLogits(this.length - part.length, result.logits)
        else chunks.push(result.logits)
      }
      onProgress?.(done, tokens.length)
    }
    await this.withSignal(options.signal, async signal => {
      try {
        const { sequence } = this
        const how = { phase, output, into, keep, routing, hidden }
        await this.host.scheduler.evaluate({ sequence, tokens, ...how, signal, onCommit })
      } catch (error) {
        throw error instanceof NonFiniteError ? await this.explain(error, tokens.slice(done), signal) : error
      }
    })
    const logits = output === 'all' ? (onLogits ? null : joinFloats(chunks)) : last.logits
    if (into && logits && logits !== into) into.set(logits)
    return { logits: into ?? logits, argmax: last.argmax, routing: picks }
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

  private async rewindTo(position: number, signal?: AbortSignal) {
    const nearest = this.saved.nearest(position)
    const firstKnown = this.history.lastIndexOf(UNKNOWN_TOKEN) + 1
    const base = this.base && this.base.length <= position ? this.base : null
    const from = Math.max(nearest ?? 0, base?.length ?? 0)
    if (from < position && from < firstKnown) throw new TokensUnknownError(position, firstKnown)
    const checkpoint = from === nearest ? this.saved.at(from) : null
    const before = { held: await this.sequence.hold(), tokens: this.history, logits: this.lastLogits.copy() }
    try {
      if (checkpoint) await this.sequence.restore(checkpoint.held)
      else if (base && base.length === from) await this.sequence.restore(base)
      else await this.sequence.clear()
      this.checkLength(from)
      this.history = before.tokens.slice(0, from)
      this.lastLogits.set(checkpoint?.logits ?? null)
      const replay = before.tokens.slice(from, position)
      if (replay.length > 0) await this.advance(replay, 'prompt', 'last', { signal })
    } catch (error) {
      await this.sequence.restore(before.held)
      this.history = before.tokens
      this.lastLogits.set(before.logits)
      throw error
    } finally {
      before.held.release()
    }
    // What lies past the position goes only now.
    if (checkpoint) this.saved.restore(from)
    else this.saved.dropAfter(position)
    if (this.base && this.base.length > position) this.dropBase()
  }

  private async restoreCheckpoint(position: number) {
    const { held, logits } = this.saved.restore(position)
    await this.sequence.restore(held)
    this.become(position, logits)
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

  private async takeOver(
    incoming: StateImport,
    length: number,
    tokens: number[] | undefined,
    logits: Float32Array | null,
  ) {
    if (tokens && tokens.length !== length) {
      incoming.drop()
      throw tokensDiffer(tokens.length, length)
    }
    incoming.commit()
    this.checkLength(length)
    await this.startFrom(tokens ?? new Array(length).fill(UNKNOWN_TOKEN), logits)
  }

  /** The sequence came from elsewhere: nothing that was known before holds. */
  private async startFrom(tokens: number[], logits: Float32Array | null) {
    this.forget()
    this.history = tokens
    this.lastLogits.set(logits)
    if (tokens.includes(UNKNOWN_TOKEN)) this.base = await this.sequence.hold()
  }

  /** The sequence was taken back to `length`. */
  private become(length: number, logits: Float32Array | null) {
    this.checkLength(length)
    this.saved.dropAfter(length)
    if (this.base && this.base.length > length) this.dropBase()
    this.history.length = length
    this.lastLogits.set(logits)
  }

  /** Tokens and layers must agree after every restore: wrong state is worse than an error. */
  private checkLength(length: number) {
    if (this.sequence.length === length) return
    const message = `the restored layers hold ${this.sequence.length} tokens, want ${length}`
    throw new SnapshotError('LengthsDiffer', message, { got: this.sequence.length, want: length })
  }

  /** Drops every state that is kept for going back. */
  private forget() {
    this.saved.dropAfter(-1)
    this.dropBase()
  }

  private dropBase() {
    this.base?.release()
    this.base = null
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

function routingChunk(tokens: number, { routing, routerWeights }: StepOutput, withWeights: boolean): RoutingChunk {
  const experts = routing as Uint16Array
  return withWeights ? { tokens, experts, weights: routerWeights as Float32Array } : { tokens, experts }
}

function tokensDiffer(got: number, held: number): OptionError {
  return new OptionError('tokens', `${got} tokens`, `the ${held} that the snapshot holds`)
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
