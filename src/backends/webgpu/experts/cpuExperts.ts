// Experts of a token that are not on the GPU and that the host computes where their bytes are, while the GPU computes the
// others. Only sums come and go: a row of the residual stream per token in, a row to add to it out.
import type { GuessedSlots } from '../../../experts/prefetch.js'

/** One expert that one token of the step was routed to. */
export interface HostPair {
  readonly token: number
  readonly expert: number
  readonly weight: number
}

export interface HostExperts extends GuessedSlots {
  /** An expert was read, or could not be. */
  onRead: (() => void) | null
  /** Experts that were to be read, wanted or ahead. */
  readonly readsAsked: number
  /** Which of a prompt's experts are better brought to the GPU, of those that are not there: expert → tokens. */
  toBring(tokensOf: ReadonlyMap<number, number>): ReadonlySet<number>
  /**
   * Per token the weighted sum of its pairs' experts over the norm of its hidden row; `hidden` [tokens, hidden]. Begins
   * before it returns. The result [tokens, hidden] is valid until the next call.
   */
  compute(layer: number, hidden: Float32Array, pairs: readonly HostPair[], signal?: AbortSignal): Promise<Float32Array>
  /**
   * Whether a prompt shall tell what its next layer will want, so that it is read meanwhile; to be asked before `layer` asks
   * for its experts.
   */
  helpsNext(layer: number): boolean
  /**
   * A prompt has asked for so many experts of the layer before this one, on both sides: has those read that this one will
   * want. `guess`: the surest first.
   */
  readNextLayer(layer: number, wanted: number, guess: readonly number[]): void
  /** Nothing more is read for coming layers: a prompt has ended, or is given up. */
  endAhead(): void
  /**
   * Waits for the threads that compute, without giving way to anything else, where they are at work and may be expected to
   * end soon: a turn of the event loop would be heard of later than they end.
   */
  spin(): void
}
