// What happens to runs before they are evaluated: RunPlans takes pages for keys and values and slots
// for recurrent states; decodeBatches says which rows decode together.
import type { KvPool } from '../../gpu/memory/kvPool.js'
import type { StatePool } from '../../gpu/memory/statePool.js'
import type { StepRun } from '../backend.js'
import { PAGE_TOKENS } from '../kvPages.js'
import type { ActiveRun } from './decode/pipelinedStep.js'
import type { GpuSequence } from './memory/gpuSequence.js'
import type { PlannedRun } from './memory/stepInfo.js'

export class RunPlans {
  constructor(
    private readonly states: StatePool,
    private readonly kv: KvPool,
  ) {}

  /**
   * Takes pages and state slots for all runs, or nothing: a slot for each token where some are
   * guesses.
   */
  async plan(runs: readonly StepRun[]): Promise<ActiveRun[]> {
    const slotsOf = ({ keep, tokens }: StepRun) => (keep ? tokens.length : 1)
    await this.states.reserve(runs.reduce((sum, run) => sum + slotsOf(run), 0))
    const wanted = runs.map(({ sequence, tokens }) => ({ sequence: sequence as GpuSequence, tokens: tokens.length }))
    await this.reservePages(wanted)
    return runs.map(run => {
      const sequence = run.sequence as GpuSequence
      const { length, draft } = sequence
      sequence.table.reserve(length, run.tokens.length)
      const states = Array.from({ length: slotsOf(run) }, () => this.states.take())
      return {
        sequence,
        tokens: run.tokens,
        position: length,
        pages: [...sequence.table.pages],
        stateIn: sequence.state,
        stateOut: states[states.length - 1],
        ...(run.keep && { states }),
        firstRow: draft?.firstRow ?? length + 1, // nothing is known of the token before the first
      }
    })
  }

  /** Pages for so many more tokens of each. */
  async reservePages(runs: readonly { sequence: GpuSequence; tokens: number }[]): Promise<void> {
    let wanted = 0
    let words = 0
    for (const { sequence, tokens } of runs) {
      const pages = Math.ceil((sequence.length + tokens) / PAGE_TOKENS)
      wanted += pages - sequence.table.pages.length + 1 // one more where the last page must be copied
      words += pages
    }
    await this.kv.reserve(Math.max(0, wanted), words)
  }

  /** Gives back what was taken for runs that came to nothing. */
  release(active: readonly ActiveRun[]): void {
    for (const { sequence, stateOut, states } of active) {
      sequence.table.trim(sequence.length)
      for (const slot of states ?? [stateOut]) this.states.release(slot)
    }
  }
}

/** Some tokens of a run. */
export interface DecodePiece {
  readonly run: number // of the step
  readonly first: number
  readonly count: number
}

/**
 * Cuts runs of so many tokens into batches of at most `most` rows, in order; a piece has at most
 * `longest`. The tokens of a run stay together where they can: a later batch goes on where the one
 * before has ended. Pure.
 */
export function decodeBatches(counts: readonly number[], most: number, longest: number): DecodePiece[][] {
  const batches: DecodePiece[][] = []
  let batch: DecodePiece[] = []
  let room = most
  const close = () => {
    if (batch.length > 0) batches.push(batch)
    batch = []
    room = most
  }
  for (const [run, count] of counts.entries()) {
    if (count > room && count <= most) close()
    for (let first = 0; first < count; ) {
      // Two pieces of a run are never in one batch: the second reads what the first has written.
      if (room === 0 || first > 0) close()
      const taken = Math.min(count - first, room, longest)
      batch.push({ run, first, count: taken })
      room -= taken
      first += taken
    }
  }
  close()
  return batches
}

/** Some tokens of a run, as a run of their own: it begins where the tokens before have ended. */
export function partOf(run: ActiveRun, { first, count }: DecodePiece): PlannedRun {
  if (count === run.tokens.length) return run
  const states = run.states?.slice(first, first + count)
  return {
    ...run,
    tokens: run.tokens.slice(first, first + count),
    position: run.position + first,
    stateIn: first === 0 ? run.stateIn : (run.states?.[first - 1] ?? run.stateIn),
    stateOut: states?.at(-1) ?? run.stateOut,
    states,
  }
}
