// One answer, token by token: choose, detokenize, split, stop where it should stop. Works on a context that stands at
// the end of its prompt and leaves it at the end of what was evaluated. Knows nothing of caches and prompts.
import type { TokenConstraint } from '../constrain/constraint.js'
import type { Context } from '../engine/context.js'
import type { Dialect } from '../text/dialects/dialect.js'
import { type Sampler, tokenLogprobs } from '../text/sampler.js'
import type { SplitEvent, SplitterOptions } from '../text/splitter.js'
import type { Tokenizer } from '../text/tokenizer.js'
import { CallEvents } from './callEvents.js'
import type { EndReason, SessionEvent, TokenInfo, TokenLogprobs } from './events.js'

/** How an answer is taken apart, and the tools whose calls are told of while they are written. */
export interface Splitting extends SplitterOptions {
  readonly toolNames?: ReadonlySet<string>
}

export interface AnswerRun {
  readonly context: Context
  readonly logits: Float32Array // [vocab], at the end of the prompt
  readonly tokenizer: Tokenizer
  readonly sampler: Sampler
  readonly eosTokenIds: ReadonlySet<number>
  readonly dialect: Dialect
  readonly splitter: Splitting
  readonly limit: number // tokens
  readonly thinkingLimit: number // tokens; then the thinking is closed
  readonly logprobs: number | null // alternatives per token; null: none wanted
  readonly constraint: TokenConstraint | null
  readonly signal: AbortSignal
  /** Does the work, and again when memory had to be made for it. */
  readonly withRoom: <T>(work: () => Promise<T>) => Promise<T>
}

/** Grows while the answer does, so that an answer that is cut off can be accounted for too. */
export class AnswerProgress {
  readonly tokens: number[] = [] // without the end token
  thinkingTokens = 0
  text = ''
  thinking = ''
  readonly calls: { name: string; arguments: string }[] = []
  reason: EndReason = 'length'
  stopSequence: string | null = null
}

export async function* answerLoop(run: AnswerRun, progress: AnswerProgress): AsyncGenerator<SessionEvent, void> {
  const { context, tokenizer, sampler, constraint, signal, dialect } = run
  const splitter = dialect.createSplitter({ ...run.splitter, callProgress: true })
  const calls = new CallEvents(run.splitter.toolNames ?? new Set())
  const marks = controlMarks(dialect, tokenizer)
  const detokenizer = tokenizer.createDetokenizer({ skipSpecial: true })
  const wantsLogits = !sampler.isArgmax || constraint !== null || run.logprobs !== null
  const thinkEnd = dialect.thinking === null ? null : (tokenizer.addedToken(dialect.thinking.close)?.id ?? null)
  let waiting: TokenLogprobs[] = [] // of tokens whose text is not out yet
  const events = function* (pieces: readonly SplitEvent[]): Generator<SessionEvent> {
    for (const piece of pieces) {
      const logprobs = waiting.length > 0 ? { logprobs: waiting } : {}
      waiting = []
      yield* record(piece, logprobs, progress, calls)
    }
  }

  let logits: Float32Array | null = run.logits
  const into = logits === null ? undefined : new Float32Array(logits.length)
  let token = -1
  while (progress.tokens.length < run.limit) {
    const thoughtEnough = splitter.inThinking && progress.thinkingTokens >= run.thinkingLimit && thinkEnd !== null
    if (thoughtEnough) token = thinkEnd
    else if (logits !== null) token = sampler.sample(logits, constraint === null ? null : await constraint.mask())
    constraint?.accept(token)
    if (run.eosTokenIds.has(token)) {
      progress.reason = 'stop'
      break
    }
    progress.tokens.push(token)
    if (splitter.inThinking) progress.thinkingTokens++
    if (run.logprobs !== null && logits !== null) waiting.push(describe(tokenizer, logits, token, run.logprobs))
    const mark = marks.get(token)
    if (mark === undefined) yield* events(splitter.push(detokenizer.push(token)))
    else yield* events([...splitter.push(detokenizer.end()), ...splitter.mark(mark)])
    if (splitter.stopped !== null) {
      progress.reason = 'stop'
      progress.stopSequence = splitter.stopped
      break
    }
    if (progress.tokens.length === run.limit) break
    signal.throwIfAborted()
    const last = token
    if (wantsLogits) logits = await run.withRoom(() => context.evalToken(last, { signal, into }))
    else {
      logits = null
      token = await run.withRoom(() => context.evalTokenGreedy(last, { signal }))
    }
  }
  yield* events(splitter.push(detokenizer.end()))
  yield* events(splitter.end(progress.reason === 'length'))
  if (progress.reason === 'stop' && progress.stopSequence === null && progress.calls.length > 0) {
    progress.reason = 'tool_calls'
  }
}

/** Control tokens that the splitter is told of; all others leave no trace in an answer. */
function controlMarks({ marks }: Dialect, tokenizer: Tokenizer): Map<number, string> {
  const added = marks.map(text => tokenizer.addedToken(text))
  return new Map(added.filter(token => token?.special === true).map(token => [token!.id, token!.text]))
}

/** What a piece is to those who read the answer. The likelihoods of its tokens go with the first event of them. */
function* record(
  piece: SplitEvent,
  logprobs: { logprobs?: readonly TokenLogprobs[] },
  progress: AnswerProgress,
  calls: CallEvents,
): Generator<SessionEvent> {
  if (piece.type === 'text' || piece.type === 'thinking') {
    progress[piece.type] += piece.text
    yield { ...piece, ...logprobs }
    return
  }
  if (piece.type === 'toolCall') progress.calls.push({ name: piece.name, arguments: piece.arguments })
  let mine = logprobs
  for (const event of calls.take(piece)) {
    yield { ...event, ...mine }
    mine = {}
  }
}

function describe(tokenizer: Tokenizer, logits: Float32Array, token: number, count: number): TokenLogprobs {
  const info = (id: number, logprob: number): TokenInfo => ({
    token: id,
    text: tokenizer.decode([id]),
    bytes: tokenizer.tokenBytes(id),
    logprob,
  })
  const { logprob, top } = tokenLogprobs(logits, token, count)
  return { ...info(token, logprob), top: top.map(entry => info(entry.token, entry.logprob)) }
}
