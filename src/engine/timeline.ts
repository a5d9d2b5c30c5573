// Where a sequence is, and where it can go back to: its tokens, the logits at its end, its checkpoints, and the state that a
// snapshot without tokens brought. Evaluates nothing by itself and knows no queue: one call at a time is the context's business.
import type { HeldState, SequenceState, StateImport } from '../backends/backend.js'
import { NoCheckpointError, OptionError, SnapshotError, TokensUnknownError } from '../base/errors.js'
import { Checkpoints } from './checkpoints.js'
import { LastLogits } from './lastLogits.js'
import { KeptState } from './state.js'

const UNKNOWN_TOKEN = -1

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
