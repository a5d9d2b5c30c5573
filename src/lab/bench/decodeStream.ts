// The tokens that a benchmark decodes after a prompt: of a source, the model's own best ones, or with guesses before each step as an
// answer would make them, but for dice that may stand in for comparing.
import { type GuessedRows, MOST_GUESSES } from '../../backends/backend.js'
import type { Context } from '../../engine/context.js'
import type { Evaluation } from '../../engine/contextOptions.js'
import type { DraftGovernor } from '../../engine/draftGovernor.js'
import type { TokenSource } from './tokenSource.js'

export interface DecodeStreamOptions {
  readonly decodeTokens: number
  readonly accept?: number // guesses are right with this likelihood, whatever they are
  readonly signal?: AbortSignal
  readonly onTokens?: (tokens: number) => void
}

/** `start`: what the prompt has come to. `stream`: which of the source's streams it is. */
export async function decodeStream(
  context: Context,
  drafts: DraftGovernor | null,
  source: TokenSource,
  stream: number,
  start: Pick<Evaluation, 'logits' | 'argmax'>,
  options: DecodeStreamOptions,
): Promise<void> {
  const { decodeTokens, signal, onTokens } = options
  let { logits, argmax } = start
  const into = logits === null ? undefined : new Float32Array(logits.length)
  for (let made = 0; made < decodeTokens; ) {
    let tokens = 1
    if (drafts !== null) {
      const round = await draftRound(context, drafts, argmax as number, decodeTokens - made, options)
      argmax = round.next
      tokens = round.tokens
    } else if (source.next) {
      logits = await context.evalToken(source.next(stream, logits as Float32Array), { signal, into })
    } else {
      argmax = await context.evalTokenGreedy(argmax as number, { signal })
    }
    made += tokens
    onTokens?.(tokens)
  }
}

/** One step with as many guesses as the governor wants, and fewer where less than that is left. */
async function draftRound(
  context: Context,
  drafts: DraftGovernor,
  token: number,
  left: number,
  { accept, signal }: DecodeStreamOptions,
): Promise<{ tokens: number; next: number }> {
  const started = performance.now()
  const count = drafts.next(Math.min(MOST_GUESSES, left - 1))
  if (count === 0) {
    const next = await context.evalTokenGreedy(token, { signal })
    drafts.roundDone({ guesses: 0, right: 0, seconds: (performance.now() - started) / 1000 })
    return { tokens: 1, next }
  }
  const guesses = await context.draft(token, count, { signal })
  let next = -1
  const keep = ({ argmax }: GuessedRows) => {
    let right = 0
    const isRight = () => (accept === undefined ? guesses[right] === argmax[right] : Math.random() < accept)
    while (right < guesses.length && isRight()) right++
    next = argmax[right]
    return right + 1
  }
  const tokens = await context.evalGuesses([token, ...guesses], { output: 'argmax', keep, signal })
  const seconds = (performance.now() - started) / 1000
  drafts.roundDone({ guesses: guesses.length, right: tokens - 1, seconds })
  return { tokens, next }
}
