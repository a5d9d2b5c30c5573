// One request of a session, from its options to its end: check, prepare the prompt, wait for a
// permit, resume from the longest kept state, evaluate the rest, answer, keep the states. Whatever
// ends it, its context, constraint and permit are released, in this order.
import { messageOf, OptionError } from '../base/errors.js'
import type { Context } from '../engine/context.js'
import type { EngineModel } from '../engine/model.js'
import type { TokenConstraint } from '../grammar/constraint.js'
import type { AnswerRequest } from '../grammar/constraintFactory.js'
import type { Dialect } from '../text/dialects/dialect.js'
import { endTokenIds } from '../text/dialects/endTokens.js'
import { Sampler, type SamplerOptions } from '../text/sampling/sampler.js'
import type { ChatTemplate } from '../text/template/chatTemplate.js'
import type { Tokenizer } from '../text/tokenizer/tokenizer.js'
import type { TextWorkers } from '../text/workers/textWorkers.js'
import { type AnswerRun, answerLoop } from './answerLoop.js'
import { answerLimit, constraintFor, logprobCount, samplerOptions, stopList } from './answerOptions.js'
import { AnswerProgress, type Splitting, type WriterOptions } from './answerWriter.js'
import type { AnswerOptions, OpenConstraint, SessionEvent, Usage } from './events.js'
import type { AnswerMemory } from './memory/rawAnswerCache.js'
import type { Prompt } from './prompt.js'
import type { StateCache } from './stateCache.js'

/** The text side of a model. */
export interface TextParts {
  readonly tokenizer: Tokenizer | null
  /** Render and encode; null without a tokenizer. */
  readonly workers: TextWorkers | null
  readonly template: ChatTemplate | null
  readonly defaults: SamplerOptions
  /** Makes constraints for response formats and tool choices; null: it cannot constrain answers. */
  readonly openConstraint: OpenConstraint | null
}

/** What the requests of a session share. */
export interface SessionParts {
  readonly model: EngineModel
  readonly text: TextParts
  /** In which the model's answers to messages are written. */
  readonly dialect: Dialect
  readonly permits: RequestSemaphore
  readonly cache: StateCache
  /** Null for a model without a tokenizer. */
  readonly answers: AnswerMemory | null
  readonly log: (line: string) => void
}

/** What a request comes to, before anything is evaluated. */
export interface PreparedRequest {
  readonly prompt: Prompt
  /** In which this answer is split: raw text has no thinking and no calls. */
  readonly dialect: Dialect
  readonly splitter: Splitting
  readonly wanted: AnswerRequest
}

interface SessionRequest {
  readonly session: SessionParts
  readonly options: AnswerOptions
  /** Registers the request; returns what unregisters it. Throws where the session is closed. */
  readonly begin: () => () => void
  readonly prepare: (signal: AbortSignal) => Promise<PreparedRequest>
  readonly signal: AbortSignal
}

export async function* runRequest(request: SessionRequest): AsyncGenerator<SessionEvent, void> {
  const { session, options, signal } = request
  const { model, text, permits } = session
  const end = request.begin()
  let constraint: TokenConstraint | null = null
  let hasPermit = false
  try {
    signal.throwIfAborted()
    const sampler = new Sampler(samplerOptions(options, text.defaults))
    const logprobs = logprobCount(options.logprobs)
    const thinkingLimit = thinkingTokens(options)
    const { prompt, dialect, splitter, wanted } = await request.prepare(signal)
    const limit = answerLimit(prompt, model.contextLength, options)
    constraint = await constraintFor(wanted, options.openConstraint ?? text.openConstraint, signal)
    await permits.acquire(signal)
    hasPermit = true
    const form = { dialect, splitter: { ...splitter, stop: stopList(options.stop) }, limit, thinkingLimit, logprobs }
    yield* answerPrompt({ session, prompt, options, sampler, constraint, form, signal })
  } finally {
    constraint?.close()
    if (hasPermit) permits.release()
    end()
  }
}

/** Thinking tokens that an answer may have. */
function thinkingTokens({ thinkingBudget }: AnswerOptions): number {
  const tokens = thinkingBudget ?? Number.POSITIVE_INFINITY
  if (!(tokens >= 0)) throw new OptionError('thinkingBudget', thinkingBudget, 'a number of tokens')
  return tokens
}

/** A request that has its permit. */
interface AdmittedRequest {
  readonly session: SessionParts
  readonly prompt: Prompt
  readonly options: AnswerOptions
  readonly sampler: Sampler
  readonly constraint: TokenConstraint | null
  readonly form: Omit<WriterOptions, 'tokenizer' | 'eosTokenIds'>
  readonly signal: AbortSignal
}

async function* answerPrompt(request: AdmittedRequest): AsyncGenerator<SessionEvent, void> {
  const { session, prompt, options, sampler, signal } = request
  const { model, cache } = session
  const context = model.createContext({ maxCheckpoints: 0 })
  const counts = new RequestCounts(prompt.ids.length)
  let missed = ''
  let final: Usage | null = null
  let outcome = 'cut off'
  let answered: readonly number[] | null = null // all tokens, if another process would get the same ones
  try {
    const resumed = await cache.resume(context, prompt, signal)
    const cached = context.length
    counts.resumedAt(cached)
    missed = cache.explainMiss(prompt, cached)
    const onProgress = (done: number) => options.onPromptProgress?.(done - cached, prompt.ids.length - cached, cached)
    const logits = await cache.evaluate(context, prompt, resumed, signal, onProgress)
    counts.answerBegins(lastShared(prompt))
    yield { type: 'usage', ...counts.usage() }
    sampler.seePrompt(prompt.ids)
    const { progress } = counts
    yield* answerLoop(answerRun(request, context, logits), progress)
    outcome = progress.reason
    const isRepeated = await rememberAnswer(session, prompt, progress, signal)
    await cache.keep(context, context.tokens, 'answer', resumed.conversation, prompt.scope)
    if (isRepeated) answered = [...context.tokens]
    final = counts.usage()
    yield { type: 'usage', ...final }
    yield { type: 'end', reason: progress.reason, stopSequence: progress.stopSequence }
  } catch (error) {
    outcome = signal.aborted ? 'aborted' : `failed: ${messageOf(error)}`
    throw error
  } finally {
    session.log(requestLine(final ?? counts.usage(), missed, outcome))
    cache.offer(prompt, answered)
    await context.close()
  }
}

function answerRun(request: AdmittedRequest, context: Context, logits: Float32Array): AnswerRun {
  const { session, sampler, constraint, form, signal } = request
  const { model, cache, dialect } = session
  const tokenizer = session.text.tokenizer as Tokenizer
  return {
    ...form,
    context,
    logits,
    tokenizer,
    sampler,
    eosTokenIds: new Set(endTokenIds(model.eosTokenIds, dialect, tokenizer)),
    constraint,
    drafts: model.drafts,
    signal,
    withRoom: work => cache.withRoom(work),
  }
}

/** Returns whether the next turn's prompt will begin with prompt and answer as they are, also in another process. */
async function rememberAnswer(
  { text: { tokenizer }, dialect, answers }: SessionParts,
  prompt: Prompt,
  { tokens, calls, text, thinking }: AnswerProgress,
  signal: AbortSignal,
): Promise<boolean> {
  if (prompt.mark === '' || tokens.length === 0 || answers === null) return false
  // An answer is no worse for being forgotten.
  const isFound = await answers.ids.remember(prompt, tokens, signal).catch(() => {
    signal.throwIfAborted()
    return false
  })
  if (calls.length === 0) return isFound && prompt.landings.at(-1)?.landmark === 'promptEnd'
  const { thinking: tags, takesWrittenCalls } = dialect
  if (!takesWrittenCalls) return false
  const raw = (tokenizer as Tokenizer).decode(tokens, { skipSpecial: true })
  const thought = tags === null ? -1 : raw.indexOf(tags.close)
  const after = tags === null || thought < 0 ? raw : raw.slice(thought + tags.close.length)
  const answer = answers.calls.remember(prompt.scope, text, calls, { thinking, text: after.replace(/^\n+/, '') })
  if (!isFound || answer === null) return false
  return await prompt.isRepeated(answer, (tokenizer as Tokenizer).decode(tokens), signal).catch(() => {
    signal.throwIfAborted()
    return false
  })
}

/** Tokens and times of a request, up to any moment of it. */
class RequestCounts {
  readonly progress = new AnswerProgress()
  private readonly started = performance.now()
  private answering = 0 // when the answer began; 0: it has not
  private cached = 0
  private written = 0

  constructor(private readonly promptTokens: number) {}

  resumedAt(position: number): void {
    this.cached = position
  }

  /** `shared`: how far into the prompt the states reach that other prompts can resume from. */
  answerBegins(shared: number): void {
    this.written = Math.max(0, shared - this.cached)
    this.answering = performance.now()
  }

  usage(): Usage {
    const { progress, started, answering, cached, written, promptTokens } = this
    const { guesses, acceptedGuesses: accepted } = progress
    return {
      promptTokens,
      cachedTokens: cached,
      newTokens: promptTokens - cached,
      cacheWrittenTokens: written,
      answerTokens: progress.tokens.length,
      thinkingTokens: progress.thinkingTokens,
      ...(guesses === 0 ? {} : { drafts: { accepted, rejected: guesses - accepted } }),
      promptSeconds: ((answering || performance.now()) - started) / 1000,
      answerSeconds: answering ? (performance.now() - answering) / 1000 : 0,
    }
  }
}

/**
 * How far into the prompt the states reach that prompts other than this very one can resume from.
 */
function lastShared({ landings }: Prompt): number {
  return landings.findLast(({ landmark }) => landmark !== 'prompt')?.position ?? 0
}

/** The one line that is logged per request. */
function requestLine(usage: Usage, missed: string, outcome: string): string {
  const { promptTokens, cachedTokens, newTokens, answerTokens, promptSeconds, answerSeconds, drafts } = usage
  const parts = [
    `prompt ${promptTokens} = ${cachedTokens} cached + ${newTokens} new${missed === '' ? '' : ` (${missed})`}`,
    ...(newTokens === 0 ? [] : [`prefill ${rate(newTokens, promptSeconds)}`]),
    `answer ${answerTokens}, decode ${rate(answerTokens, answerSeconds)}`,
    ...(drafts === undefined ? [] : [`${drafts.accepted} of ${drafts.accepted + drafts.rejected} guesses right`]),
    outcome,
  ]
  return parts.join(' · ')
}

/** Tokens per second, as log lines have it. */
export function rate(tokens: number, seconds: number): string {
  const perSecond = tokens / Math.max(seconds, 1e-4)
  return `${perSecond < 100 ? perSecond.toPrecision(3) : Math.round(perSecond)} tok/s`
}

/**
 * Limits how many requests run at once. The others wait in order, until they get a permit or are
 * aborted.
 */
export class RequestSemaphore {
  taken = 0
  private readonly queue: (() => void)[] = []

  constructor(private readonly permits: number) {}

  get waiting(): number {
    return this.queue.length
  }

  /** Resolves with a permit, which the caller must `release`. */
  async acquire(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    if (this.taken < this.permits) {
      this.taken++
      return
    }
    await new Promise<void>((resolve, reject) => {
      const leave = () => {
        this.queue.splice(this.queue.indexOf(enter), 1)
        reject(signal.reason)
      }
      const enter = () => {
        signal.removeEventListener('abort', leave)
        resolve()
      }
      signal.addEventListener('abort', leave, { once: true })
      this.queue.push(enter)
    })
  }

  /** The permit goes to the first that waits. */
  release(): void {
    const next = this.queue.shift()
    if (next) next()
    else this.taken--
  }
}
