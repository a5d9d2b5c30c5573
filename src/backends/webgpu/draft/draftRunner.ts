// What makes guesses for some rows, a row being a sequence and a token behind it. Two do: residentDraft.ts where the GPU holds all
// experts, streamingDraft.ts where some may have to be brought or are computed elsewhere.
import { MOST_GUESSES } from '../../backend.js'
import { type PlannedRun, TOKEN_WORDS } from '../memory/stepInfo.js'
import { MAX_DECODE_BATCH } from '../memory/workspace.js'

/** Of the tokens that decode together. */
export const TOKENS_BYTES = MAX_DECODE_BATCH * TOKEN_WORDS * 4

/** What a chain of guesses takes beside the buffers of decoding. */
export function chainBytes(ropeDims: number): number {
  return MOST_GUESSES * (2 * TOKENS_BYTES + MAX_DECODE_BATCH * ropeDims * 4)
}

/** Where a row begins: one token, not evaluated yet, with what the head knows of the one before. */
export interface GuessRow extends PlannedRun {
  readonly count: number // guesses that are wanted at most; there are pages for as many
}

/** Called while the GPU is at work on guesses, with what it writes the token of each to: that of the first row comes first. */
export type OnGuessing = (tokens: readonly GPUBuffer[]) => void

export interface GuessOrders {
  readonly signal: AbortSignal | undefined
  readonly onSubmitted: OnGuessing | undefined
  readonly wantsLogits: boolean // `readLogits` will be asked for those of the last guess
}

export interface Guesser {
  /** Rows that guesses are made for from now on. */
  begin(rows: readonly GuessRow[]): void
  /** So many more guesses, each behind the best token before it: best tokens [guesses][rows], or NOT_FINITE. */
  extend(guesses: number, orders: GuessOrders): Promise<Uint32Array[]>
  /** The last guess's, until the next one is made. */
  readLogits(row: number): Promise<Float32Array>
  /** Another token than the best is what the next guess comes behind. */
  put(row: number, token: number): void
}

/** The rows at their guess number `index`; those that want fewer stay where they end. */
export function rowsAt(rows: readonly GuessRow[], index: number, tokens: readonly number[]): PlannedRun[] {
  return rows.map((row, i) => ({
    ...row,
    tokens: [tokens[i]],
    position: row.position + Math.min(index, row.count - 1),
  }))
}
