// Steps that are submitted before they are asked for: the token after the best one (LookAhead), and
// the step that verifies a round of guesses (RoundAhead). The step that wants just this takes it;
// anything else drops it, which leaves no trace: it has written recurrent states of its own, and
// rows past the committed length that no kernel reads, or in a page of its own. Only where every
// expert is in a slot, and where no memory has to grow for it.
import type { KvPool } from '../../../gpu/memory/kvPool.js'
import type { StatePool } from '../../../gpu/memory/statePool.js'
import type { DraftRequest, StepRun } from '../../backend.js'
import { PAGE_TOKENS } from '../../kvPages.js'
import type { GpuSequence } from '../memory/gpuSequence.js'
import type { PlannedRun, StepInfo } from '../memory/stepInfo.js'
import type { DecodePass, DecodeResult } from './decodePass.js'

/** A run with what the step takes for it. */
export interface ActiveRun extends PlannedRun {
  readonly sequence: GpuSequence
  readonly firstRow: number
}

const PATIENCE = 2 // rounds that check all guesses, before one is submitted early

/** What a run takes that its sequence has not got yet. */
interface Room {
  readonly states: readonly number[] // after each token
  readonly page: number | null // the last of `pages`, where a new one is needed
  readonly pages: readonly number[]
}

interface Submitted {
  readonly run: ActiveRun
  readonly reading: Promise<DecodeResult>
  readonly page: number | null // the last of the run's, which its sequence has not got yet
}

/** One submitted step that no one has asked for. */
export class SubmittedAhead {
  private next: Submitted | null = null
  private claimed: Submitted | null = null

  constructor(
    private readonly states: StatePool,
    private readonly kv: KvPool,
    private readonly info: StepInfo,
  ) {}

  /** The run that waits to be asked for. */
  get run(): ActiveRun | null {
    return this.next?.run ?? null
  }

  /**
   * What so many tokens at a position take, where `pages` are those of the tokens before; null
   * where something would have to grow for it.
   */
  takeRoom(pages: readonly number[], position: number, tokens: number): Room | null {
    const isEdge = position + tokens > pages.length * PAGE_TOKENS
    const page = isEdge ? this.kv.takeSpare(pages.length + 1) : null
    if (isEdge && page === null) return null
    const states: number[] = []
    while (states.length < tokens && this.states.hasFree) states.push(this.states.take())
    if (states.length === tokens) return { states, page, pages: page === null ? pages : [...pages, page] }
    this.release(states, page)
    return null
  }

  /** The run has a room that was taken here; `submit` gives null where it cannot be submitted now. */
  submit(run: ActiveRun, submit: () => Promise<DecodeResult> | null, page: number | null = null): void {
    this.info.write([run])
    const reading = submit()
    if (reading === null) {
      this.release(statesOf(run), page)
      return
    }
    reading.catch(() => {}) // `take` hands it out; the device's end is reported elsewhere, too
    this.next = { run, reading, page }
  }

  /**
   * Gives it to a step that wants it; null, and nothing waits any more, where it wants something
   * else.
   */
  claim(isWanted: boolean): ActiveRun | null {
    if (!isWanted) this.drop()
    const { next } = this
    if (next === null) return null
    this.next = null
    this.claimed = next
    if (next.page !== null) next.run.sequence.table.add(next.page)
    return next.run
  }

  /** What was claimed for this run, on its way; null: nothing. */
  take(run: ActiveRun): Promise<DecodeResult> | null {
    const { claimed } = this
    this.claimed = null
    return claimed?.run === run ? claimed.reading : null
  }

  /** It is not wanted. `sequence`: where it is of this one. */
  drop(sequence?: GpuSequence): void {
    const { next } = this
    if (next === null || (sequence !== undefined && next.run.sequence !== sequence)) return
    this.release(statesOf(next.run), next.page)
    this.next = null
  }

  /** What was taken for a run that nobody will ask for. */
  private release(states: readonly number[], page: number | null): void {
    for (const slot of states) this.states.release(slot)
    if (page !== null) this.kv.pages.release(page)
  }
}

function statesOf({ states, stateOut }: ActiveRun): readonly number[] {
  return states ?? [stateOut]
}

/** What a step gave: the token that comes next, and where. */
interface Given {
  readonly sequence: GpuSequence
  readonly position: number
  readonly token: number
}

/**
 * A sequence that takes the best token each time asks next for exactly what the GPU has found. So
 * the token after the present one is submitted before the present one has come back, its id copied
 * on the GPU, and the GPU never waits for the host. Begins when a sequence has taken the best token
 * `patience` times in a row: one that may draft next would wait for a token that is dropped. One
 * run at a time.
 */
export class LookAhead {
  private inRow = 0 // steps that went on with the best token
  private given: Given | null = null

  constructor(
    private readonly submitted: SubmittedAhead,
    private readonly info: StepInfo,
    private readonly pass: DecodePass,
    private readonly patience: number,
  ) {}

  /**
   * What a step takes that is computed already; null, and nothing is computed ahead any more, where
   * it wants something else.
   */
  claim(runs: readonly StepRun[]): ActiveRun | null {
    const { run } = this.submitted
    const isThere = run !== null && run.position === run.sequence.length
    return this.submitted.claim(isThere && runs.length === 1 && this.goesOn(runs[0]))
  }

  /** Whether these runs are one that will have the token after it computed, too. */
  isLikely(runs: readonly StepRun[]): boolean {
    return runs.length === 1 && this.goesOn(runs[0]) && this.inRow + 1 >= this.patience
  }

  /** Whether a step of this one run may be decoded here. */
  isFor(run: StepRun): boolean {
    return run.phase === 'decode' && run.output === 'argmax' && run.tokens.length === 1 && !run.hidden
  }

  /**
   * Decodes a single run, and begins with the token after it where its sequence has gone on with
   * the best one.
   */
  async decode(run: StepRun, active: ActiveRun, signal?: AbortSignal): Promise<DecodeResult> {
    const reading = this.submitted.take(active)
    this.inRow = this.goesOn(run) ? this.inRow + 1 : 0
    const begins = this.inRow >= this.patience
    this.given = null
    try {
      let result: DecodeResult
      if (reading === null) {
        this.info.write([active])
        const onSubmitted = () => begins && this.begin(active)
        result = await this.pass.run({ tokens: 1, runs: 1 }, { signal, onSubmitted })
      } else {
        this.begin(active)
        result = await this.pass.finish(reading, 1, signal)
      }
      this.given = { sequence: active.sequence, position: active.position + 1, token: result.winners[0] }
      return result
    } catch (error) {
      this.drop()
      throw error
    }
  }

  /** Nothing that was computed ahead is wanted. `sequence`: of this one. */
  drop(sequence?: GpuSequence): void {
    this.submitted.drop(sequence)
  }

  private goesOn(run: StepRun): boolean {
    const given = this.given
    if (given === null || !this.isFor(run)) return false
    const { sequence, tokens } = run
    return given.sequence === sequence && given.position === sequence.length && given.token === tokens[0]
  }

  private begin({ sequence, position, pages, stateOut: stateIn, firstRow }: ActiveRun): void {
    const next = position + 1
    const room = this.submitted.takeRoom(pages, next, 1)
    if (room === null) return
    const stateOut = room.states[0]
    const run = { sequence, tokens: [0], position: next, pages: room.pages, stateIn, stateOut, firstRow }
    this.submitted.submit(run, () => this.pass.submitNext(), room.page)
  }
}

interface Guessed {
  readonly sequence: GpuSequence
  readonly position: number
  readonly tokens: readonly number[] // the first is no guess
}

/**
 * A round of guesses is two calls for the host, to guess and then to check by a step, and one piece
 * of work for the GPU, which knows first which tokens the step has. So where a sequence checks its
 * guesses as they are, the step is submitted with them, the tokens copied on the GPU, which does
 * not wait while guesses come to the host and go back. Begins when a sequence has done so for
 * PATIENCE rounds.
 */
export class RoundAhead {
  private inRow = 0 // rounds whose step had all guesses
  private guessed: Guessed | null = null

  constructor(
    private readonly submitted: SubmittedAhead,
    private readonly pass: DecodePass,
  ) {}

  /** Who asks will check what is guessed in a step of its own, as it seems. */
  isLikely(requests: readonly DraftRequest[]): boolean {
    return this.inRow >= PATIENCE && requests.length === 1 && requests[0].choose === undefined
  }

  /** Guesses are submitted. `from`: what they are written to, each; `most`: rows of a step. */
  begin({ sequence, token, count }: DraftRequest, from: readonly GPUBuffer[], most: number): void {
    const own = sequence as GpuSequence
    const { length: position, state: stateIn, draft } = own
    const rows = count + 1
    if (draft === null || from.length !== count || rows > most) return
    // Pages past the committed length are the guesses', and go with them.
    const kept = own.table.pages.slice(0, Math.ceil(position / PAGE_TOKENS))
    const room = this.submitted.takeRoom(kept, position, rows)
    if (room === null) return
    const tokens = [token, ...from.map(() => 0)]
    const { states, pages } = room
    const stateOut = states[count]
    const run = { sequence: own, tokens, position, pages, stateIn, stateOut, states, firstRow: draft.firstRow }
    this.submitted.submit(run, () => this.pass.submitGuessed(from), room.page)
  }

  /** What a sequence that asked alone has been given. */
  give({ sequence, token, count }: DraftRequest, guesses: readonly number[]): void {
    const own = sequence as GpuSequence
    if (this.guessed !== null) this.inRow = 0 // nobody checked the last ones
    this.guessed = { sequence: own, position: own.length, tokens: [token, ...guesses] }
    if (guesses.length < count) this.drop()
  }

  /**
   * What a step takes that is submitted already; null, and nothing is any more, where it wants
   * something else.
   */
  claim(runs: readonly StepRun[]): ActiveRun | null {
    const isRound = runs.length === 1 && this.checks(runs[0])
    this.guessed = null
    this.inRow = isRound ? this.inRow + 1 : 0
    return this.submitted.claim(isRound)
  }

  /** What was claimed for this run, on its way; null: nothing. */
  take(run: ActiveRun): Promise<DecodeResult> | null {
    return this.submitted.take(run)
  }

  /** What was submitted is not wanted. `sequence`: of this one. */
  drop(sequence?: GpuSequence): void {
    this.submitted.drop(sequence)
  }

  /** Whether a step of this run checks what was guessed last. */
  private checks({ sequence, tokens, phase, output, keep, hidden }: StepRun): boolean {
    const { guessed } = this
    if (guessed === null || phase !== 'decode' || output !== 'argmax' || !keep || hidden) return false
    const isThere = guessed.sequence === sequence && guessed.position === sequence.length
    return isThere && tokens.length === guessed.tokens.length && tokens.every((token, i) => token === guessed.tokens[i])
  }
}
