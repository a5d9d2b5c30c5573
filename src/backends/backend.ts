// What the engine asks of a compute backend. A backend owns the resident weights, the expert cache and the state of
// sequences, in whatever memory its math runs in. It may not know about prompts, chat, checkpoint rules, queues or
// files' names: the engine above decides what to evaluate, a backend evaluates it.
//
// The one promise that everything above builds on: a step is atomic. It reads each sequence's committed state, writes
// K/V rows past the committed length and recurrent state into a second buffer, and commits all runs at the very end by
// moving lengths and swapping buffers. A step that throws (abort, failed expert read) leaves every sequence as it was.
// So does one whose hidden rows after the last layer, or whose logits, are not all finite: it throws NonFiniteError. What
// is NaN or infinite in a layer stays so in the rows after it, so no state that a step commits holds such a value.
// For the same reason a held state (a checkpoint) needs no copy of the recurrent state: the holder keeps the buffer,
// and the sequence takes another for its next step.
import type { MoefluxError } from '../base/errors.js'
import type { ModelConfig } from '../model/config.js'
import type { ModelStats } from './stats.js'

export type BackendName = 'reference' | 'wasm' | 'webgpu'
export type Precision = 'fast' | 'exact'

export interface BackendOptions {
  readonly threads?: number
  readonly expertMemory?: number // bytes
  /** The most GPU memory for experts (webgpu); default what the GPU gives. The processor computes the others. */
  readonly gpuMemory?: number // bytes
  /** How experts are read from files; auto: direct when they exceed free memory. */
  readonly expertReads?: 'auto' | 'direct' | 'buffered'
  /** Read experts ahead where it pays; default true. */
  readonly prefetch?: boolean
  /** Load the model's head for drafts, where it carries one and the backend can use it; 'auto': if it may pay. Default false. */
  readonly drafts?: boolean | 'auto'
  /** The most guesses that will be made for a token, which memory is planned for; default MOST_GUESSES. */
  readonly guesses?: number
  /** Put the time of every kernel into `phaseSeconds`, where that costs speed (webgpu). */
  readonly profile?: boolean
  /** For tests: the words of a ReadFaults, a disk that fails. */
  readonly readFaults?: SharedArrayBuffer
  readonly precision: Precision
  readonly expertsPerToken: number
  /** State that must fit whatever happens later; default: one sequence of `PLANNED_TOKENS`. */
  readonly planned?: PlannedState
  /** Chosen by 'auto': refuse, with BackendUnavailableError, to run on what is slower than the next best backend. */
  readonly automatic?: boolean
  readonly onProgress?: (progress: Progress) => void
  readonly signal?: AbortSignal
  /** One line for the user: a fallback taken, a size chosen. */
  readonly onNotice?: (line: string) => void
}

export interface PlannedState {
  readonly tokens: number // of all sequences together
  readonly sequences: number
  /** The number comes from the context's length, so that a shorter one would help. */
  readonly isContext: boolean
}

export interface Progress {
  readonly phase: string
  readonly loaded: number
  readonly total: number
}

export interface Backend {
  readonly name: BackendName
  readonly config: ModelConfig
  /** For people: 'wasm, 2 threads, relaxed SIMD, fast'. */
  readonly description: string
  /** The most tokens that one step takes over all its runs, at present. Prompts are cut at absolute multiples of it. */
  readonly chunkTokens: number
  /** The same where tokens of others wait for the end of the step; `chunkTokens` is a multiple of it. Absent: no less than that. */
  readonly shortChunkTokens?: number
  /** Why nothing can be evaluated any more (a worker died, the GPU went away), from the moment on when that is so. */
  readonly failure: MoefluxError | null
  createSequence(): SequenceState
  /** Evaluates all runs together (one expert read serves all) and commits them; atomic. One step at a time. */
  step(runs: readonly StepRun[], options?: StepOptions): Promise<StepOutput[]>
  /**
   * Guesses what comes after tokens that are not evaluated yet. Commits nothing, and takes turns with steps. Absent where the
   * model carries no head, or it is not loaded.
   */
  readonly draft?: (requests: readonly DraftRequest[], options?: StepOptions) => Promise<DraftOutput[]>
  /** The most guesses that there is memory for, where that is less than MOST_GUESSES. */
  readonly mostGuesses?: number
  /** Why there is no `draft` though the model carries a head and one was asked for, where that depends on this machine. */
  readonly noDrafts?: string | null
  /** Whether it runs steps otherwise than usual now, to see whether they are faster so: their times say little. */
  readonly isTrying?: boolean
  /** Evaluates without committing anything, and tells what happened inside. */
  probe(sequence: SequenceState, request: ProbeRequest): Promise<ProbeResult>
  stats(): ModelStats
  /** Ends when no expert is read any more that nobody has asked for: what there is room for is there, or cannot be read. */
  loaded(): Promise<void>
  /** What memory holds of experts is not to be trusted: they are read again when they are wanted. Not while a step runs. */
  forgetExperts(): void
  /** Which experts are in memory now. */
  residency(): Uint8Array // [layers with experts, experts], 1: in memory; the caller's own copy
  close(): Promise<void>
}

export interface StepRun {
  readonly sequence: SequenceState
  readonly tokens: readonly number[] // at least one; no sequence twice in a step
  /** A decode has one token. A prompt of one token is still a prompt: backends may compute the two by other kernels. */
  readonly phase: 'prompt' | 'decode'
  /** 'argmax' needs no logits on the host: the token alone comes back. */
  readonly output: 'none' | 'last' | 'all' | 'argmax'
  /** Memory [vocab] that a backend may return the logits of 'last' in. */
  readonly into?: Float32Array
  /** Fill `StepOutput.hidden`. Not with guesses. */
  readonly hidden?: boolean
  /**
   * The tokens after the first are guesses. Called once, when all rows are known to be finite and before anything is
   * committed: says how many of the tokens become part of the sequence, from 1 to all. It must not throw, and the step
   * cannot fail any more once it was called: who chose at random must not have to choose again. Wants a decode with
   * output 'all' or 'argmax', and no more than 1 + MOST_GUESSES tokens.
   */
  readonly keep?: (rows: GuessedRows) => number | Promise<number>
}

/** The most guesses that one step checks. */
export const MOST_GUESSES = 3

/** What came out at each token of a run with guesses. */
export interface GuessedRows {
  readonly logits: Float32Array | null // [tokens, vocab] with output 'all'
  readonly argmax: Int32Array // [tokens]
}

export interface DraftRequest {
  readonly sequence: SequenceState
  /** The token that comes next and is not evaluated yet. */
  readonly token: number
  readonly count: number // guesses, 1 to MOST_GUESSES
  /** What came before. Backends that guess among common tokens guess those of it, too. Default nothing. */
  readonly text?: readonly number[]
  /**
   * Takes guess `index` from the head's logits [vocab], which are valid during the call; null: no more guesses. Without
   * it the best token is taken, and no logits leave the backend. It must not throw.
   */
  readonly choose?: (logits: Float32Array, index: number) => number | null | Promise<number | null>
}

export interface DraftOutput {
  readonly guesses: readonly number[] // none where the head has not seen the last token: after an import
}

export interface StepOptions {
  readonly signal?: AbortSignal
  /** Fill `StepOutput.routing`; 'weights': `routerWeights`, too. */
  readonly routing?: boolean | 'weights'
  /**
   * Keep the head for drafts up to date; default true. Where a backend does not, it guesses nothing behind this step, and later by what
   * it has seen since.
   */
  readonly head?: boolean
}

export interface StepOutput {
  readonly logits: Float32Array | null // 'last': [vocab]; 'all': [tokens, vocab]; the caller's own copy
  readonly argmax: number | null // at the last token that was kept
  readonly kept: number // tokens that are part of the sequence now
  readonly routing: Uint16Array | null // [layers with experts, tokens, K], highest weight first
  readonly routerWeights?: Float32Array // the same, what each of these experts counts for; where asked for
  readonly hidden?: Float32Array // [tokens, hidden], after the final norm, where asked for; the caller's own copy
}

/** The state of one sequence in the backend's memory. Calls never overlap a step that uses the sequence. */
export interface SequenceState {
  readonly length: number // committed tokens; what every full-attention layer holds
  readonly bytes: number // memory in use, shared pages counted once here
  /** Back to the empty sequence; forgets expert predictions too. */
  clear(): Promise<void>
  /** Forgets which experts the last token used. */
  clearPredictions(): void
  /** Keeps exactly this state for later, sharing K/V pages copy-on-write. */
  hold(): Promise<HeldState>
  /**
   * Becomes exactly what was held, by this sequence or another one of the backend. The held state stays valid and may be
   * restored again. Forgets expert predictions.
   */
  restore(held: HeldState): Promise<void>
  exportLayer(layer: number): Promise<LayerState>
  /** Some token rows of a full-attention layer, so that no state is ever too long to be copied. */
  exportRows(layer: number, part: KvPart, start: number, rows: number): Promise<Float32Array>
  /** Begins to take another state of `length` tokens, piece by piece; the sequence is as it was until that is committed. */
  beginImport(length: number): Promise<StateImport>
  /** Becomes the given state, layers in order, all of `length` tokens; as it was where that fails. */
  importLayers(length: number, layers: Iterable<LayerState>): Promise<void>
  release(): void
}

export type KvPart = 'keys' | 'values'

/** A state on its way in. Whoever began it commits or drops it. */
export interface StateImport {
  rows(layer: number, part: KvPart, start: number, rows: Float32Array): void
  linear(layer: number, state: LinearLayerState): void
  /** The sequence becomes what was given, all of it. */
  commit(): void
  /** Gives the memory back. */
  drop(): void
}

export interface LinearLayerState {
  readonly conv: Float32Array // [3, linearConvDim], oldest first
  readonly recurrent: Float32Array // [valueHeads, valueDim, keyDim]
}

/** Takes a state whose layers are there as a whole. */
export async function importWhole(
  sequence: SequenceState,
  length: number,
  layers: Iterable<LayerState>,
): Promise<void> {
  const incoming = await sequence.beginImport(length)
  try {
    let layer = 0
    for (const state of layers) {
      if (state.kind === 'linear_attention') incoming.linear(layer, state)
      else {
        incoming.rows(layer, 'keys', 0, state.keys)
        incoming.rows(layer, 'values', 0, state.values)
      }
      layer++
    }
  } catch (error) {
    incoming.drop()
    throw error
  }
  incoming.commit()
}

export interface HeldState {
  readonly length: number
  readonly bytes: number // memory that only this hold keeps alive
  /** Harmless after the backend was closed. */
  release(): void
}

export type LayerState =
  | {
      readonly kind: 'full_attention'
      readonly keys: Float32Array // [length, kvHeads * headDim], after norm and RoPE
      readonly values: Float32Array // [length, kvHeads * headDim]
    }
  | ({ readonly kind: 'linear_attention' } & LinearLayerState)

/**
 * Either tokens from the embedding through all layers and the head, or through the first `end` layers alone; or hidden
 * rows through one layer. `layers`: those that are told of, all where it is not given.
 */
export type ProbeRequest =
  | { readonly tokens: readonly number[]; readonly layers?: readonly number[]; readonly end?: number }
  | { readonly layer: number; readonly hidden: Float32Array } // [rows, hidden]

export interface ProbeResult {
  readonly embed: Float32Array | null // [tokens, hidden]
  readonly layers: readonly LayerProbe[]
  readonly finalNorm: Float32Array | null // [tokens, hidden]
  readonly logits: Float32Array | null // [tokens, vocab]
}

/** Arrays are empty where a layer has nothing of the kind. */
export interface LayerProbe {
  readonly layer: number
  readonly mixerOut: Float32Array // [tokens, hidden], before the residual add
  readonly normed: Float32Array // [tokens, hidden], the feed-forward block's input
  readonly routerLogits: Float32Array // [tokens, experts]
  readonly routerIndices: Int32Array // [tokens, K], highest probability first
  readonly routerWeights: Float32Array // [tokens, K]
  readonly sharedOut: Float32Array // [tokens, hidden], before its gate
  readonly sharedGate: Float32Array // [tokens], after the sigmoid
  readonly mlpOut: Float32Array // [tokens, hidden], before the residual add
  readonly out: Float32Array // [tokens, hidden]
}

/**
 * What the head for drafts knows of a sequence, on every backend: shared by held states, never changed. Its keys and values lie in
 * the sequence's pages: those of token t are made of t and the hidden row of the token before.
 */
export interface DraftState {
  readonly hidden: Float32Array // [hidden], of the last token, after the model's final norm
  readonly firstRow: number // rows before it were never computed
}
