// One step that was submitted before anybody asked for it. The step that wants just this takes it; whatever else comes drops it,
// which leaves no trace: it has written recurrent states of its own and rows past the committed length, which nobody reads.
import type { DecodeResult } from './decodePass.js'
import type { GpuSequence } from './gpuSequence.js'
import type { StatePool } from './statePool.js'
import type { PlannedRun, StepInfo } from './stepInfo.js'

/** A run with what the step takes for it. */
export interface ActiveRun extends PlannedRun {
  readonly sequence: GpuSequence
  readonly firstRow: number
}

interface Submitted {
  readonly run: ActiveRun
  readonly reading: Promise<DecodeResult>
}

export class SubmittedAhead {
  private next: Submitted | null = null
  private claimed: Submitted | null = null

  constructor(
    private readonly states: StatePool,
    private readonly info: StepInfo,
  ) {}

  /** The run that waits to be asked for. */
  get run(): ActiveRun | null {
    return this.next?.run ?? null
  }

  /** So many free slots for recurrent states; null where some would have to be made. */
  takeStates(count: number): number[] | null {
    const taken: number[] = []
    while (taken.length < count && this.states.hasFree) taken.push(this.states.take())
    if (taken.length === count) return taken
    this.release(taken)
    return null
  }

  /** The run has states that were taken here; `submit` gives null where it cannot be submitted now. */
  submit(run: ActiveRun, submit: () => Promise<DecodeResult> | null): void {
    this.info.write([run])
    const reading = submit()
    if (reading === null) {
      this.release(statesOf(run))
      return
    }
    reading.catch(() => {}) // whoever takes it hears of it; the device's end is heard of elsewhere, too
    this.next = { run, reading }
  }

  /** Gives it to a step that wants it; null, and nothing waits any more, where it wants something else. */
  claim(isWanted: boolean): ActiveRun | null {
    if (!isWanted) this.drop()
    const { next } = this
    if (next === null) return null
    this.next = null
    this.claimed = next
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
    this.release(statesOf(next.run))
    this.next = null
  }

  private release(states: readonly number[]): void {
    for (const slot of states) this.states.release(slot)
  }
}

function statesOf({ states, stateOut }: ActiveRun): readonly number[] {
  return states ?? [stateOut]
}
