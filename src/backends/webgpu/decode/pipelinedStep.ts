// One step that was submitted before anybody asked for it. The step that wants just this takes it; whatever else comes drops it,
// which leaves no trace: it has written recurrent states of its own and rows past the committed length, which nobody reads, or which are in a page of its own.
import type { KvPool } from '../../../gpu/memory/kvPool.js'
import type { StatePool } from '../../../gpu/memory/statePool.js'
import { PAGE_TOKENS } from '../../kvPages.js'
import type { GpuSequence } from '../memory/gpuSequence.js'
import type { PlannedRun, StepInfo } from '../memory/stepInfo.js'
import type { DecodeResult } from './decodePass.js'

/** A run with what the step takes for it. */
export interface ActiveRun extends PlannedRun {
  readonly sequence: GpuSequence
  readonly firstRow: number
}

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

  /** What so many tokens at a position take, where `pages` are those of the tokens before; null where something would have to grow for it. */
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
    reading.catch(() => {}) // whoever takes it hears of it; the device's end is heard of elsewhere, too
    this.next = { run, reading, page }
  }

  /** Gives it to a step that wants it; null, and nothing waits any more, where it wants something else. */
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
