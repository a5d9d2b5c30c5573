// The state of a sequence over time: its position and what it can return to (Timeline),
// checkpoints, and states outside any context (KeptState).
import type { HeldState, SequenceState, StateImport } from '../backends/backend.js'
import { ClosedError, NoCheckpointError, OptionError, SnapshotError, TokensUnknownError } from '../base/errors.js'

const UNKNOWN_TOKEN = -1

/**
 * Where a sequence is, and where it can go back to: its tokens, the logits at its end, its
 * checkpoints, and the state that a snapshot without tokens brought. Evaluates nothing itself, and
 * has no queue: the context calls one method at a time.
 */
export class Timeline {
  readonly checkpoints: Checkpoints
  private history: number[] = [] // [length]; UNKNOWN_TOKEN where a snapshot came without its tokens
  private readonly lastLogits: LastLogits
  /** The state that a snapshot without tokens brought: what later positions can be replayed from. */
  private base: HeldState | null = null

  constructor(
    readonly sequence: SequenceState,
    vocabSize: number,
    maxCheckpoints: number,
  ) {
    this.checkpoints = new Checkpoints(maxCheckpoints)
    this.lastLogits = new LastLogits(vocabSize)
  }

  get length(): number {
    return this.history.length
  }

  get tokens(): number[] {
    return [...this.history]
  }

  /** The same, as long as nothing changes. */
  get text(): readonly number[] {
    return this.history
  }

  get bytes(): number {
    return this.sequence.bytes + this.checkpoints.bytes + (this.base?.bytes ?? 0)
  }

  /** A copy of the logits at the end, where they are known. */
  get logits(): Float32Array | null {
    return this.lastLogits.copy()
  }

  /** The sequence has these tokens more. `logits`: of one of them or more, of which the last counts. */
  advanced(tokens: readonly number[], logits: Float32Array | null): void {
    this.history.push(...tokens)
    this.lastLogits.set(logits)
  }

  async clear(): Promise<void> {
    await this.sequence.clear()
    this.forget()
    this.history = []
    this.lastLogits.set(null)
  }

  async checkpoint(): Promise<void> {
    const held = await this.sequence.hold()
    this.checkpoints.store(this.length, { held, logits: this.logits })
  }

  /** Exactly the state that was stored there. */
  async restore(position: number): Promise<void> {
    if (!this.checkpoints.has(position)) throw new NoCheckpointError(position, this.checkpoints.positions)
    const { held, logits } = this.checkpoints.restore(position)
    await this.sequence.restore(held)
    this.checkLength(position)
    this.checkpoints.dropAfter(position)
    this.dropBaseAfter(position)
    this.history.length = position
    this.lastLogits.set(logits)
  }

  /** To an earlier position, from the nearest state before it: `replay` evaluates what lies between. As it was where that fails. */
  async rewind(position: number, replay: (tokens: readonly number[]) => Promise<unknown>): Promise<void> {
    const nearest = this.checkpoints.nearest(position)
    const firstKnown = this.history.lastIndexOf(UNKNOWN_TOKEN) + 1
    const base = this.base && this.base.length <= position ? this.base : null
    const from = Math.max(nearest ?? 0, base?.length ?? 0)
    if (from < position && from < firstKnown) throw new TokensUnknownError(position, firstKnown)
    const checkpoint = from === nearest ? this.checkpoints.at(from) : null
    const before = { held: await this.sequence.hold(), tokens: this.history, logits: this.logits }
    try {
      if (checkpoint) await this.sequence.restore(checkpoint.held)
      else if (base && base.length === from) await this.sequence.restore(base)
      else await this.sequence.clear()
      this.checkLength(from)
      this.history = before.tokens.slice(0, from)
      this.lastLogits.set(checkpoint?.logits ?? null)
      const between = before.tokens.slice(from, position)
      if (between.length > 0) await replay(between)
    } catch (error) {
      await this.sequence.restore(before.held)
      this.history = before.tokens
      this.lastLogits.set(before.logits)
      throw error
    } finally {
      before.held.release()
    }
    // What lies past the position goes only now.
    if (checkpoint) this.checkpoints.restore(from)
    else this.checkpoints.dropAfter(position)
    this.dropBaseAfter(position)
  }

  /** Becomes what was put together in `incoming`. Tokens that are not as many as it holds change nothing. */
  async takeOver(
    incoming: StateImport,
    length: number,
    tokens: number[] | undefined,
    logits: Float32Array | null,
  ): Promise<void> {
    if (tokens && tokens.length !== length) {
      incoming.drop()
      throw tokensDiffer(tokens.length, length)
    }
    incoming.commit()
    await this.startFrom(length, tokens, logits)
  }

  /** The sequence came from elsewhere and has so many tokens: nothing that was known before holds. */
  async startFrom(length: number, tokens: number[] | undefined, logits: Float32Array | null): Promise<void> {
    this.checkLength(length)
    this.forget()
    this.history = tokens ?? new Array(length).fill(UNKNOWN_TOKEN)
    this.lastLogits.set(logits)
    if (this.history.includes(UNKNOWN_TOKEN)) this.base = await this.sequence.hold()
  }

  async keep(): Promise<KeptState> {
    return new KeptState(await this.sequence.hold(), this.tokens, this.logits)
  }

  async adopt({ held, tokens, logits }: KeptState): Promise<void> {
    await this.sequence.restore(held)
    await this.startFrom(tokens.length, [...tokens], logits)
  }

  release(): void {
    this.forget()
    this.sequence.release()
  }

  /** Tokens and layers must agree after every restore: wrong state is worse than an error. */
  private checkLength(length: number): void {
    if (this.sequence.length === length) return
    const message = `the restored layers hold ${this.sequence.length} tokens, want ${length}`
    throw new SnapshotError('LengthsDiffer', message, { got: this.sequence.length, want: length })
  }

  /** Drops every state that is kept for going back. */
  private forget(): void {
    this.checkpoints.dropAfter(-1)
    this.dropBaseAfter(-1)
  }

  private dropBaseAfter(position: number): void {
    if (this.base === null || this.base.length <= position) return
    this.base.release()
    this.base = null
  }
}

export function tokensDiffer(got: number, held: number): OptionError {
  return new OptionError('tokens', `${got} tokens`, `the ${held} that the snapshot holds`)
}

interface Checkpoint {
  readonly held: HeldState
  readonly logits: Float32Array | null // [vocab], where they were known
}

/**
 * The checkpoints of one context: held states by position, with the logits there. The rules decide
 * which of them stay; this releases the others.
 */
class Checkpoints {
  private readonly rules: CheckpointRules
  private readonly states = new Map<number, Checkpoint>()

  constructor(max: number) {
    this.rules = new CheckpointRules(max)
  }

  get max(): number {
    return this.rules.max
  }

  /** Lowering it evicts at the next store. */
  set max(max: number) {
    this.rules.max = max
  }

  get positions(): number[] {
    return this.rules.positions
  }

  get bytes(): number {
    let bytes = 0
    for (const { held, logits } of this.states.values()) bytes += held.bytes + (logits?.byteLength ?? 0)
    return bytes
  }

  has(position: number): boolean {
    return this.rules.has(position)
  }

  nearest(position: number): number | null {
    return this.rules.nearest(position)
  }

  /** The checkpoint at `position`, which must be there. */
  at(position: number): Checkpoint {
    return this.states.get(position) as Checkpoint
  }

  store(position: number, checkpoint: Checkpoint): void {
    this.states.get(position)?.held.release()
    this.states.set(position, checkpoint)
    this.release(this.rules.store(position))
  }

  /** The checkpoint at `position`, which must be there; those after it are gone. */
  restore(position: number): Checkpoint {
    this.release(this.rules.restore(position))
    return this.at(position)
  }

  dropAfter(position: number): void {
    this.release(this.rules.dropAfter(position))
  }

  private release(positions: readonly number[]) {
    for (const position of positions) {
      this.states.get(position)?.held.release()
      this.states.delete(position)
    }
  }
}

/**
 * Which positions of a sequence have a checkpoint, at most `max`. Storing over a position refreshes
 * it. Evicts the least recently used one (stored or restored), never the one just stored, and
 * position 0 (the empty sequence, or a shared start) only when nothing else is left. Pure.
 */
export class CheckpointRules {
  private readonly used: number[] = [] // positions, least recently used first

  constructor(public max: number) {}

  /** Ascending. */
  get positions(): number[] {
    return this.used.toSorted((a, b) => a - b)
  }

  has(position: number): boolean {
    return this.used.includes(position)
  }

  /** The greatest position that is not past `position`, or null. */
  nearest(position: number): number | null {
    return this.positions.findLast(p => p <= position) ?? null
  }

  /** Returns what has to go; `position` itself where checkpoints are off. */
  store(position: number): number[] {
    this.remove(position)
    this.used.push(position)
    const evicted: number[] = []
    while (this.used.length > Math.max(this.max, 1)) {
      const candidates = this.used.slice(0, -1)
      const victim = candidates.find(p => p !== 0) ?? candidates[0]
      this.remove(victim)
      evicted.push(victim)
    }
    if (this.max === 0) {
      this.remove(position)
      evicted.push(position)
    }
    return evicted
  }

  /** Counts as use of `position`; returns the ones after it, which have to go. */
  restore(position: number): number[] {
    this.remove(position)
    this.used.push(position)
    return this.dropAfter(position)
  }

  dropAfter(position: number): number[] {
    const dropped = this.used.filter(p => p > position)
    for (const p of dropped) this.remove(p)
    return dropped
  }

  private remove(position: number) {
    const index = this.used.indexOf(position)
    if (index >= 0) this.used.splice(index, 1)
  }
}

/** The logits at the current position, if known, in memory that every token reuses. */
class LastLogits {
  private values: Float32Array | null = null // [vocab]
  private known = false

  constructor(private readonly vocabSize: number) {}

  /** `logits`: of one token or more, of which the last counts. */
  set(logits: Float32Array | null) {
    this.known = logits !== null
    if (!logits) return
    this.values ??= new Float32Array(this.vocabSize)
    this.values.set(logits.subarray(logits.length - this.vocabSize))
  }

  copy(): Float32Array | null {
    return this.known && this.values ? this.values.slice() : null
  }
}

/**
 * A state outside any context, with the tokens that made it: what a prefix cache keeps. Contexts of
 * the same model can adopt it, any number of times.
 */
export class KeptState {
  private released = false

  constructor(
    private readonly state: HeldState,
    readonly tokens: readonly number[],
    readonly logits: Float32Array | null, // [vocab], of the last token, where known
  ) {}

  /** Memory that only this state keeps alive. */
  get bytes(): number {
    return this.released ? 0 : this.state.bytes + (this.logits?.byteLength ?? 0)
  }

  get held(): HeldState {
    if (this.released) throw new ClosedError('kept state')
    return this.state
  }

  release(): void {
    if (!this.released) this.state.release()
    this.released = true
  }
}
