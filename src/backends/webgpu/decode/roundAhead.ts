// A round of guesses is two things for the host, to guess and then to check by a step, and one for the GPU: which tokens the
// step has is known there first. So where a sequence checks its guesses as they are, the step is submitted with them, the tokens
// copied on the GPU, which does not wait while guesses come to the host and go back. The step that is asked for then takes it, or else it
// is dropped (pipelinedStep.ts). Begun when a sequence has done so for some rounds; only where every expert is in a slot, and where no
// memory has to grow for it.
import type { DraftRequest, StepRun } from '../../backend.js'
import { PAGE_TOKENS } from '../../kvPages.js'
import type { GpuSequence } from '../memory/gpuSequence.js'
import type { DecodePass, DecodeResult } from './decodePass.js'
import type { ActiveRun, SubmittedAhead } from './pipelinedStep.js'

const PATIENCE = 2 // rounds

interface Guessed {
  readonly sequence: GpuSequence
  readonly position: number
  readonly tokens: readonly number[] // the first is no guess
}

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

  /** What a step takes that is submitted already; null, and nothing is any more, where it wants something else. */
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
