// Whoever takes the best token each time asks next for exactly what the GPU has found. So the token after the present one is
// submitted before the present one has come back, its id copied on the GPU, and the GPU never waits for the host. The next step
// takes what is computed already, or else it is dropped (pipelinedStep.ts). Begun when a sequence has taken the best token `patience` times in a row: who may draft next would
// wait for a token that is dropped. Only where every expert is in a slot, and where a step before it has found memory for its state.
// Knows one run at a time.
import type { StepRun } from '../../backend.js'
import type { GpuSequence } from '../memory/gpuSequence.js'
import type { StepInfo } from '../memory/stepInfo.js'
import type { DecodePass, DecodeResult } from './decodePass.js'
import type { ActiveRun, SubmittedAhead } from './pipelinedStep.js'

/** What a step gave: the token that comes next, and where. */
interface Given {
  readonly sequence: GpuSequence
  readonly position: number
  readonly token: number
}

export class LookAhead {
  private inRow = 0 // steps that went on with the best token
  private given: Given | null = null

  constructor(
    private readonly submitted: SubmittedAhead,
    private readonly info: StepInfo,
    private readonly pass: DecodePass,
    private readonly patience: number,
  ) {}

  /** What a step takes that is computed already; null, and nothing is computed ahead any more, where it wants something else. */
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

  /** Decodes a single run, and begins with the token after it where its sequence has gone on with the best one. */
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
