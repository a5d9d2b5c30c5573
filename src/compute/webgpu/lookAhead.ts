// Whoever takes the best token each time asks next for exactly what the GPU has found. So the token after the present one is
// submitted before the present one has come back, its id copied on the GPU, and the GPU never waits for the host. The next step
// takes what is computed already, or else it is dropped: it has written a recurrent state of its own and rows past the committed
// length, which nobody reads. Begun when a sequence has taken the best token `patience` times in a row: who may draft next would
// wait for a token that is dropped. Only where every expert is in a slot, and within a page, so that no memory is asked for.
// Knows one run at a time.
import type { StepRun } from '../backend.js'
import { PAGE_TOKENS } from '../kvPages.js'
import type { DecodePass, DecodeResult } from './decodePass.js'
import type { GpuSequence } from './gpuSequence.js'
import type { StatePool } from './statePool.js'
import type { PlannedRun, StepInfo } from './stepInfo.js'

/** A run with what the step takes for it. */
export interface ActiveRun extends PlannedRun {
  readonly sequence: GpuSequence
  readonly firstRow: number
}

/** What a step gave: the token that comes next, and where. */
interface Given {
  readonly sequence: GpuSequence
  readonly position: number
  readonly token: number
}

interface Submitted {
  readonly run: ActiveRun
  readonly reading: Promise<DecodeResult>
}

export class LookAhead {
  private readonly states: StatePool
  private readonly info: StepInfo
  private readonly pass: DecodePass
  private readonly patience: number
  private inRow = 0 // steps that went on with the best token
  private given: Given | null = null
  private next: Submitted | null = null
  private claimed: Submitted | null = null

  constructor(states: StatePool, info: StepInfo, decode: DecodePass, patience: number) {
    this.states = states
    this.info = info
    this.pass = decode
    this.patience = patience
  }

  /** What a step takes that is computed already; null, and nothing is computed ahead any more, where it wants something else. */
  claim(runs: readonly StepRun[]): ActiveRun | null {
    const next = this.next
    if (next === null) return null
    if (runs.length !== 1 || !this.goesOn(runs[0]) || next.run.position !== next.run.sequence.length) {
      this.drop()
      return null
    }
    this.next = null
    this.claimed = next
    return next.run
  }

  /** Whether a step of this one run may be decoded here. */
  isFor(run: StepRun): boolean {
    return run.phase === 'decode' && run.output === 'argmax' && run.tokens.length === 1 && !run.hidden
  }

  /** Decodes a single run, and begins with the token after it where its sequence has gone on with the best one. */
  async decode(run: StepRun, active: ActiveRun, signal?: AbortSignal): Promise<DecodeResult> {
    const claimed = this.claimed?.run === active ? this.claimed : null
    this.claimed = null
    this.inRow = this.goesOn(run) ? this.inRow + 1 : 0
    const begins = this.inRow >= this.patience
    this.given = null
    try {
      let result: DecodeResult
      if (claimed === null) {
        this.info.write([active])
        const onSubmitted = () => begins && this.begin(active)
        result = await this.pass.run({ tokens: 1, runs: 1 }, { signal, onSubmitted })
      } else {
        this.begin(active)
        result = await this.pass.finish(claimed.reading, 1, signal)
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
    if (this.next === null || (sequence !== undefined && this.next.run.sequence !== sequence)) return
    this.next.reading.catch(() => {}) // the device's end is heard of elsewhere
    this.states.release(this.next.run.stateOut)
    this.next = null
  }

  private goesOn(run: StepRun): boolean {
    const given = this.given
    if (given === null || !this.isFor(run)) return false
    const { sequence, tokens } = run
    return given.sequence === sequence && given.position === sequence.length && given.token === tokens[0]
  }

  private begin({ sequence, position, pages, stateOut: stateIn, firstRow }: ActiveRun): void {
    const next = position + 1
    if (next >= pages.length * PAGE_TOKENS || !this.states.hasFree) return
    const stateOut = this.states.take()
    const run = { sequence, tokens: [0], position: next, pages, stateIn, stateOut, firstRow }
    this.info.write([run])
    const reading = this.pass.submitNext()
    if (reading === null) this.states.release(stateOut)
    else this.next = { run, reading }
  }
}
