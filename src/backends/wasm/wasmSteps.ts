// What the backend lets its parts do with the board: probes and drafts are steps of their own.
import type { ModelConfig } from '../../model/config.js'
import type { StepRun } from '../backend.js'
import type { RecurrentSet } from './memory/sequenceStore.js'
import type { WasmRuntime } from './openRuntime.js'
import type { WasmSequence } from './wasmSequence.js'
import type { JobParts } from './workers/jobBoard.js'

/** A run of a step that is under way. */
export interface ActiveRun {
  readonly sequence: WasmSequence
  readonly tokens: readonly number[]
  readonly rowStart: number
  readonly guesses: boolean
  readonly next: readonly RecurrentSet[] // one, or one for each token where there are guesses
}

export interface WasmSteps {
  readonly runtime: WasmRuntime
  readonly config: ModelConfig
  readonly chunkTokens: number
  createSequence(): WasmSequence
  /** Makes room in every sequence, or in none. */
  begin(runs: readonly Pick<StepRun, 'sequence' | 'tokens' | 'keep'>[]): ActiveRun[]
  writeRuns(active: readonly ActiveRun[]): void
  /** The tables of a run's keys and values, and its pages from `position` on; how many these are. */
  writePages(sequence: WasmSequence, rowStart: number, position: number, pageBase: number): number
  runParts(parts: JobParts, signal?: AbortSignal): Promise<void>
  workersFor(rows: number): number
}
