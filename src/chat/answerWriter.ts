// An answer as it grows: detokenizes and splits each token, and says when the answer ends.
import type { CallProgressEvent, SplitEvent, SplitterOptions } from '../text/answer/splitter.js'
import type { Dialect } from '../text/dialects/dialect.js'
import { tokenLogprobs } from '../text/sampling/sampler.js'
import type { Tokenizer } from '../text/tokenizer/tokenizer.js'
import type { EndReason, SessionEvent, TokenInfo, TokenLogprobs, ToolCallEvent } from './events.js'

/** How an answer is taken apart, and the tools whose calls are told of while they are written. */
export interface Splitting extends SplitterOptions {
  readonly toolNames?: ReadonlySet<string>
}

/** Grows while the answer does, so that an answer that is cut off can be accounted for too. */
export class AnswerProgress {
  readonly tokens: number[] = [] // without the end token
  thinkingTokens = 0
  guesses = 0
  acceptedGuesses = 0
  text = ''
  thinking = ''
  readonly calls: { name: string; arguments: string }[] = []
  reason: EndReason = 'length'
  stopSequence: string | null = null
}

export interface WriterOptions {
  readonly tokenizer: Tokenizer
  readonly dialect: Dialect
  readonly splitter: Splitting
  readonly eosTokenIds: ReadonlySet<number>
  readonly limit: number // tokens
  readonly thinkingLimit: number // tokens; then the thinking is closed
  readonly logprobs: number | null // alternatives per token; null: none wanted
}

export class AnswerWriter {
  private readonly splitter
  private readonly detokenizer
  private readonly calls: CallEvents
  private readonly marks: ReadonlyMap<number, string>
  private readonly thinkEnd: number | null
  private waiting: TokenLogprobs[] = [] // of tokens whose text is not out yet
  private events: SessionEvent[] = []

  constructor(
    private readonly options: WriterOptions,
    private readonly progress: AnswerProgress,
  ) {
    const { tokenizer, dialect, splitter } = options
    this.splitter = dialect.createSplitter({ ...splitter, callProgress: true })
    this.detokenizer = tokenizer.createDetokenizer({ skipSpecial: true })
    this.calls = new CallEvents(splitter.toolNames ?? new Set())
    this.marks = controlMarks(dialect, tokenizer)
    this.thinkEnd = dialect.thinking === null ? null : (tokenizer.addedToken(dialect.thinking.close)?.id ?? null)
  }

  /** The token that must come now, whatever the model says; null: none. */
  get forced(): number | null {
    const thoughtEnough = this.splitter.inThinking && this.progress.thinkingTokens >= this.options.thinkingLimit
    return thoughtEnough ? this.thinkEnd : null
  }

  /** More tokens that the answer may have. */
  get room(): number {
    return this.options.limit - this.progress.tokens.length
  }

  /** Takes the next token up; false: the answer ends here. `logits` [vocab] that it was chosen from, where known. */
  take(token: number, logits: Float32Array | null): boolean {
    const { progress, options, splitter, detokenizer } = this
    if (options.eosTokenIds.has(token)) {
      progress.reason = 'stop'
      return false
    }
    progress.tokens.push(token)
    if (splitter.inThinking) progress.thinkingTokens++
    if (options.logprobs !== null && logits !== null) {
      this.waiting.push(describe(options.tokenizer, logits, token, options.logprobs))
    }
    const mark = this.marks.get(token)
    if (mark === undefined) this.push(splitter.push(detokenizer.push(token)))
    else this.push([...splitter.push(detokenizer.end()), ...splitter.mark(mark)])
    if (splitter.stopped !== null) {
      progress.reason = 'stop'
      progress.stopSequence = splitter.stopped
      return false
    }
    return this.room > 0
  }

  /** Nothing more comes. */
  end(): void {
    const { progress, splitter } = this
    this.push(splitter.push(this.detokenizer.end()))
    this.push(splitter.end(progress.reason === 'length'))
    if (progress.reason === 'stop' && progress.stopSequence === null && progress.calls.length > 0) {
      progress.reason = 'tool_calls'
    }
  }

  /** What is to be told since the last call. */
  flush(): SessionEvent[] {
    const { events } = this
    this.events = []
    return events
  }

  /** The likelihoods of a piece's tokens go with the first event of them. */
  private push(pieces: readonly SplitEvent[]): void {
    for (const piece of pieces) {
      let logprobs = this.waiting.length > 0 ? { logprobs: this.waiting } : {}
      this.waiting = []
      if (piece.type === 'text' || piece.type === 'thinking') {
        this.progress[piece.type] += piece.text
        this.events.push({ ...piece, ...logprobs })
        continue
      }
      if (piece.type === 'toolCall') this.progress.calls.push({ name: piece.name, arguments: piece.arguments })
      for (const event of this.calls.take(piece)) {
        this.events.push({ ...event, ...logprobs })
        logprobs = {}
      }
    }
  }
}

/** Control tokens that the splitter is told of; all others leave no trace in an answer. */
function controlMarks({ marks }: Dialect, tokenizer: Tokenizer): Map<number, string> {
  const added = marks.map(text => tokenizer.addedToken(text))
  return new Map(added.filter(token => token?.special === true).map(token => [token!.id, token!.text]))
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

type CallEvent = CallProgressEvent | Extract<SplitEvent, { type: 'toolCall' }>

/**
 * Tool calls as a session reports them. Each has an id from its beginning. A call of a tool that
 * was offered is reported while it is written; what only looks like a call of another tool, when
 * it is whole. A whole call always comes after its beginning and all of its arguments.
 */
class CallEvents {
  private open: { readonly id: string; readonly isTold: boolean } | null = null

  constructor(private readonly offered: ReadonlySet<string>) {}

  *take(event: CallEvent): Generator<ToolCallEvent> {
    const { open } = this
    switch (event.type) {
      case 'toolCallStart': {
        const id = newCallId()
        const isTold = this.offered.has(event.name)
        this.open = { id, isTold }
        if (isTold) yield { type: 'toolCallStart', id, name: event.name }
        break
      }
      case 'toolCallDelta':
        if (open?.isTold) yield { ...event, id: open.id }
        break
      case 'toolCallDropped':
        if (open?.isTold) yield { type: 'toolCallDropped', id: open.id }
        this.open = null
        break
      case 'toolCall': {
        const { name, arguments: text } = event
        const id = open?.id ?? newCallId()
        if (!open?.isTold) {
          yield { type: 'toolCallStart', id, name }
          yield { type: 'toolCallDelta', id, arguments: text }
        }
        yield { type: 'toolCall', id, name, arguments: text }
        this.open = null
      }
    }
  }
}

function newCallId(): string {
  return `call_${crypto.randomUUID().replaceAll('-', '').slice(0, 24)}`
}
