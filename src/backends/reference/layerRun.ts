// What the blocks of a layer are told: which rows are whose, and who brings experts.
import type { ModelConfig } from '../../model/config.js'
import type { ExpertWeights } from '../../ops/moe/reference.js'
import type { LayerProbe } from '../backend.js'
import type { LinearState } from './sequence.js'

/** Some tokens of one sequence: rows [row, row + tokens) of the step's arrays. */
export interface LayerRun {
  readonly row: number
  readonly tokens: number
  readonly position: number // of the first token
  /** Pages of this layer with room for the tokens; only for full attention. */
  readonly pages: { readonly keys: readonly Float32Array[]; readonly values: readonly Float32Array[] } | null
  /** State before the tokens; only for linear attention. */
  readonly linear: LinearState | null
  /** The tokens after the first may turn out wrong: the state after each of them is wanted. */
  readonly guesses?: boolean
  /** The first row that counts, where earlier ones hold nothing; default 0. */
  readonly firstRow?: number
}

export interface LayerContext {
  readonly config: ModelConfig
  readonly expertsPerToken: number
  /** Gives this layer's experts, each once, in any order. */
  takeExperts(wanted: readonly number[]): AsyncIterable<[number, ExpertWeights]>
  /** Wall time up to here belongs to this phase; also a place to stop. */
  phase(name: 'mixer' | 'router' | 'experts' | 'dense'): Promise<void>
}

/** What the feed-forward block tells; empty arrays where a layer has nothing of the kind. */
export type FeedForwardProbe = Pick<
  LayerProbe,
  'routerLogits' | 'routerIndices' | 'routerWeights' | 'sharedOut' | 'sharedGate' | 'mlpOut'
>
