// Conversations over one model: messages or text in, a stream of events out. Every request gets a sequence of its own;
// what makes later requests cheap are the states that are kept along the way, at turn boundaries, and that any later
// prompt with the same beginning goes on from. Rendering, matching, choosing tokens and storing are done elsewhere.
import { ClosedError, messageOf, OptionError, TemplateError, TokenizerError } from '../base/errors.js'
import { joinSignals } from '../base/joinSignals.js'
import type { EngineModel } from '../engine/model.js'
import { asksForForm } from '../grammar/checkRequest.js'
import type { TokenConstraint } from '../grammar/constraint.js'
import type { AnswerRequest } from '../grammar/constraintFactory.js'
import type { ToolSchema } from '../grammar/source/toolCallGrammar.js'
import { recurrentBytes } from '../model/sizes.js'
import type { Dialect } from '../text/dialects/dialect.js'
import { endTokenIds } from '../text/dialects/endTokens.js'
import { findDialect } from '../text/dialects/findDialect.js'
import { Sampler, type SamplerOptions } from '../text/sampling/sampler.js'
import type { ChatTemplate } from '../text/template/chatTemplate.js'
import { plainMessages, plainTools } from '../text/template/messages.js'
import type { Tokenizer } from '../text/tokenizer/tokenizer.js'
import type { TextWorkers } from '../text/workers/textWorkers.js'
import { answerLoop } from './answerLoop.js'
import { answerLimit, constraintFor, logprobCount, samplerOptions, stopList } from './answerOptions.js'
import { AnswerProgress, type Splitting } from './answerWriter.js'
import { type Embedding, type EmbedOptions, embeddedIds, embedTokens } from './embedding.js'
import { EventStream } from './eventStream.js'
import type { AnswerOptions, ChatOptions, CompleteOptions, OpenConstraint, SessionEvent, Usage } from './events.js'
import { AnswerMemory } from './memory/rawAnswerCache.js'
import { parameterTypes } from './parameterTypes.js'
import { PrefixCache } from './prefixCache.js'
import type { Prompt } from './prompt.js'
import { PromptBuilder } from './promptBuilder.js'
import { rawIds, rawPrompt } from './rawPrompt.js'
import { Slots } from './slots.js'
import { StateCache } from './stateCache.js'
import { StateStores, type StoreChoice, type TierState } from './stateStores.js'

export interface SessionOptions {
  /** Where states are kept beyond the life of the session, and for others; several are asked in their order. */
  readonly store?: StoreChoice | readonly StoreChoice[]
  /** So many requests run at once and so many conversations are kept; others wait, the oldest are forgotten. Default 8. */
  readonly maxSequences?: number
  /** Memory for kept states, in bytes. Default 1 GiB, or six states of a model whose states are larger. */
  readonly byteBudget?: number
  /** One line per request: tokens cached and new, why not more were cached, rates. */
  readonly onLog?: (line: string) => void
  /** What went wrong beside the answers: a store that cannot be written, a damaged entry. */
  readonly onWarning?: (line: string) => void
}

export interface SessionState {
  readonly running: number
  readonly waiting: number
  readonly states: number
  readonly bytes: number
  readonly byteBudget: number // for kept states
  /** Prompts by where the longest beginning of them was found. */
  readonly found: { readonly memory: number; readonly disk: number; readonly shared: number; readonly nowhere: number }
  readonly tiers: readonly TierState[]
}

/** The text side of a model. */
export interface TextParts {
  readonly tokenizer: Tokenizer | null
  /** Render and encode for it; there where it is. */
  readonly workers: TextWorkers | null
  readonly template: ChatTemplate | null
  readonly defaults: SamplerOptions
  /** Makes constraints for response formats and tool choices, where there is a way to. */
  readonly openConstraint: OpenConstraint | null
}

/** What a request comes to, before anything is evaluated. */
interface Prepared {
  readonly prompt: Prompt
  readonly dialect: Dialect
  readonly splitter: Splitting
  readonly wanted: AnswerRequest
}

const DEFAULT_SEQUENCES = 8
const DEFAULT_BYTES = 2 ** 30
const PLAIN = findDialect(null) // raw text is no chat: nothing in it is thinking, or a call
const STORED_TURNS = 2 // before the last, whose states a store is asked for: one may not have been written in time

export class Session {
  private readonly cache: StateCache
  private readonly hasStore: boolean
  private readonly byteBudget: number
  private readonly slots: Slots
  private readonly answers: AnswerMemory | null
  private readonly running = new Map<Pick<AbortController, 'abort'>, Promise<void>>()
  private closed: Promise<void> | null = null

  constructor(
    private readonly model: EngineModel,
    private readonly text: TextParts,
    private readonly options: SessionOptions = {},
    private readonly onClosed: () => void = () => {},
  ) {
    const conversations = atLeastOne('maxSequences', options.maxSequences ?? DEFAULT_SEQUENCES)
    const bytes = options.byteBudget ?? Math.max(DEFAULT_BYTES, 6 * recurrentBytes(model.config))
    if (!(bytes >= 0)) throw new OptionError('byteBudget', bytes, 'a number of bytes')
    const { store } = options
    const warn = (line: string) => options.onWarning?.(line)
    const choices =
      store === undefined ? [] : Array.isArray(store) ? (store as readonly StoreChoice[]) : [store as StoreChoice]
    this.hasStore = choices.length > 0
    this.byteBudget = bytes
    const stores = new StateStores(choices, model, warn)
    this.cache = new StateCache(new PrefixCache({ bytes, conversations }), stores, warn)
    this.slots = new Slots(conversations)
    const { tokenizer, workers } = text
    const notes = this.hasStore ? stores : null
    this.answers = tokenizer === null || workers === null ? null : new AnswerMemory(tokenizer, workers, notes)
  }

  /** Answers messages through the model's chat template. */
  chat(options: ChatOptions): EventStream {
    return this.stream(options, async signal => {
      const { messages, breakpoints } = plainMessages(options.messages)
      const tools = options.toolChoice === 'none' ? [] : plainTools(options.tools)
      const begun = this.beginning(options)
      const { prefill, thinkingPrefill, thinking } = begun
      const variables = options.templateVariables
      const request = { messages, tools, breakpoints, variables, ...begun, scope: options.cacheScope }
      const prompt = await this.promptBuilder().build(request, signal)
      const splitter = {
        insideThinking: prompt.insideThinking,
        thinkingBegun: !!thinkingPrefill,
        insideText: !!prefill,
        toolCalls: tools.length > 0,
        parameterType: parameterTypes(tools),
        toolNames: new Set(tools.map(tool => (tool.function as ToolSchema).name)),
      }
      if (prefill && asksForForm(options)) {
        throw new OptionError('prefill', prefill, 'no format and no required tool beside it')
      }
      const mayThink = !!thinking && !prompt.insideThinking && this.dialect.thinking !== null
      const wanted = {
        responseFormat: options.responseFormat,
        tools: tools.map(tool => tool.function as ToolSchema),
        toolChoice: options.toolChoice ?? 'auto',
        parallelToolCalls: options.parallelToolCalls ?? true,
        insideThinking: prompt.insideThinking,
        ...(mayThink && { mayThink }),
      }
      return { prompt, dialect: this.dialect, splitter, wanted }
    })
  }

  /** Goes on with raw text. */
  complete(options: CompleteOptions): EventStream {
    return this.stream(options, async signal => {
      const ids = await rawIds(options.prompt, this.needWorkers(), this.model.contextLength, signal)
      const prompt = rawPrompt(ids, options.cacheScope ?? '', this.hasStore)
      const wanted: AnswerRequest = {
        responseFormat: options.responseFormat,
        tools: [],
        toolChoice: 'none',
        parallelToolCalls: false,
        insideThinking: false,
        isRaw: true,
      }
      return { prompt, dialect: PLAIN, splitter: { thinking: false, toolCalls: false }, wanted }
    })
  }

  /**
   * Vectors of texts, or of token ids: see embedding.ts. All of them are looked at before the first is evaluated; then they
   * are one request, whose inputs take turns with the chunks of other prompts.
   */
  async embed(inputs: readonly (string | readonly number[])[], options: EmbedOptions = {}): Promise<Embedding[]> {
    if (this.closed) throw new ClosedError('session')
    const ending = new AbortController()
    const { signal, release } = joinSignals(ending.signal, ...(options.signal ? [options.signal] : []))
    let finished = () => {}
    this.running.set(ending, new Promise(resolve => (finished = resolve)))
    try {
      const hasText = inputs.some(input => typeof input === 'string')
      const workers = hasText ? this.needWorkers() : null
      const all: (readonly number[])[] = []
      for (const input of inputs) {
        all.push(await embeddedIds(input, workers, this.model.contextLength, { ...options, signal }))
      }
      await this.slots.take(signal)
      try {
        const started = performance.now()
        const embeddings: Embedding[] = []
        for (const ids of all) {
          const vector = await this.cache.withRoom(() => embedTokens(this.model, ids, signal))
          embeddings.push({ vector, tokens: ids.length })
        }
        const tokens = all.reduce((sum, ids) => sum + ids.length, 0)
        this.options.onLog?.(embeddingLine(all.length, tokens, (performance.now() - started) / 1000))
        return embeddings
      } finally {
        this.slots.give()
      }
    } finally {
      release()
      this.running.delete(ending)
      finished()
    }
  }

  /** The tokens that a chat's prompt has, without evaluating it. */
  async countTokens(
    options: Pick<
      ChatOptions,
      'messages' | 'tools' | 'toolChoice' | 'thinking' | 'prefill' | 'thinkingPrefill' | 'cacheScope' | 'signal'
    >,
  ): Promise<number> {
    const { cacheScope: scope, signal } = options
    const { messages } = plainMessages(options.messages)
    const tools = options.toolChoice === 'none' ? [] : plainTools(options.tools)
    return await this.promptBuilder().count({ messages, tools, ...this.beginning(options), scope }, signal)
  }

  /** Requests that run now, states kept and their memory, and what the stores did. */
  get state(): SessionState {
    return {
      running: this.slots.taken,
      waiting: this.slots.waiting,
      states: this.cache.states,
      bytes: this.cache.bytes,
      byteBudget: this.byteBudget,
      found: { ...this.cache.found },
      tiers: this.cache.tiers,
    }
  }

  /** Stops what runs, puts what is worth it into the store, and gives the memory back. */
  close(): Promise<void> {
    this.closed ??= this.shutDown()
    return this.closed
  }

  private async shutDown(): Promise<void> {
    for (const stream of this.running.keys()) stream.abort(new ClosedError('session'))
    await Promise.all(this.running.values())
    await this.cache.close()
    this.onClosed()
  }

  private stream(options: AnswerOptions, prepare: (signal: AbortSignal) => Promise<Prepared>): EventStream {
    return new EventStream((signal, stream) => this.request(stream, options, prepare, signal), options.signal)
  }

  private async *request(
    stream: EventStream,
    options: AnswerOptions,
    prepare: (signal: AbortSignal) => Promise<Prepared>,
    signal: AbortSignal,
  ): AsyncGenerator<SessionEvent, void> {
    if (this.closed) throw new ClosedError('session')
    let finished = () => {}
    this.running.set(stream, new Promise(resolve => (finished = resolve)))
    let slotTaken = false
    let constraint: TokenConstraint | null = null
    try {
      signal.throwIfAborted()
      const sampler = new Sampler(samplerOptions(options, this.text.defaults))
      logprobCount(options.logprobs)
      if (!((options.thinkingBudget ?? 0) >= 0)) {
        throw new OptionError('thinkingBudget', options.thinkingBudget, 'a number of tokens')
      }
      const { prompt, dialect, splitter, wanted } = await prepare(signal)
      const limit = answerLimit(prompt, this.model.contextLength, options)
      constraint = await constraintFor(wanted, options.openConstraint ?? this.text.openConstraint, signal)
      await this.slots.take(signal)
      slotTaken = true
      const stops = stopList(options.stop)
      yield* this.run(prompt, dialect, { ...splitter, stop: stops }, sampler, constraint, limit, options, signal)
    } finally {
      constraint?.close()
      if (slotTaken) this.slots.give()
      this.running.delete(stream)
      finished()
      if (!this.closed) this.cache.whenIdle()
    }
  }

  private async *run(
    prompt: Prompt,
    dialect: Dialect,
    splitter: Splitting,
    sampler: Sampler,
    constraint: TokenConstraint | null,
    limit: number,
    options: AnswerOptions,
    signal: AbortSignal,
  ): AsyncGenerator<SessionEvent, void> {
    const context = this.model.createContext({ maxCheckpoints: 0 })
    const progress = new AnswerProgress()
    const started = performance.now()
    let answering = 0
    let cached = 0
    let written = 0
    let missed = ''
    const usage = (): Usage => ({
      promptTokens: prompt.ids.length,
      cachedTokens: cached,
      newTokens: prompt.ids.length - cached,
      cacheWrittenTokens: written,
      answerTokens: progress.tokens.length,
      thinkingTokens: progress.thinkingTokens,
      ...(progress.guesses === 0 ? {} : { drafts: draftUsage(progress) }),
      promptSeconds: ((answering || performance.now()) - started) / 1000,
      answerSeconds: answering ? (performance.now() - answering) / 1000 : 0,
    })
    let final: Usage | null = null
    let outcome = 'cut off'
    let answered: readonly number[] | null = null // all tokens, where another process would get the same ones
    try {
      const resumed = await this.cache.resume(context, prompt, signal)
      cached = context.length
      missed = this.cache.explainMiss(prompt, cached)
      const onProgress = (done: number) => options.onPromptProgress?.(done - cached, prompt.ids.length - cached, cached)
      const logits = await this.cache.evaluate(context, prompt, resumed, signal, onProgress)
      written = Math.max(0, lastShared(prompt) - cached)
      answering = performance.now()
      yield { type: 'usage', ...usage() }
      sampler.seePrompt(prompt.ids)
      const { tokenizer } = this.text
      const loop = answerLoop(
        {
          context,
          logits,
          tokenizer: tokenizer as Tokenizer,
          sampler,
          eosTokenIds: new Set(endTokenIds(this.model.eosTokenIds, this.dialect, tokenizer as Tokenizer)),
          dialect,
          splitter,
          limit,
          thinkingLimit: options.thinkingBudget ?? Number.POSITIVE_INFINITY,
          logprobs: logprobCount(options.logprobs),
          constraint,
          drafts: this.model.drafts,
          signal,
          withRoom: work => this.cache.withRoom(work),
        },
        progress,
      )
      yield* loop
      outcome = progress.reason
      const isRepeated = await this.remember(prompt, progress, signal)
      await this.cache.keep(context, context.tokens, 'answer', resumed.conversation, prompt.scope)
      if (isRepeated) answered = [...context.tokens]
      final = usage()
      yield { type: 'usage', ...final }
      yield { type: 'end', reason: progress.reason, stopSequence: progress.stopSequence }
    } catch (error) {
      outcome = signal.aborted ? 'aborted' : `failed: ${messageOf(error)}`
      throw error
    } finally {
      this.options.onLog?.(requestLine(final ?? usage(), missed, outcome))
      this.cache.offer(prompt, answered)
      await context.close()
    }
  }

  /** Returns whether the next turn's prompt will begin with prompt and answer as they are, also in another process. */
  private async remember(prompt: Prompt, progress: AnswerProgress, signal: AbortSignal): Promise<boolean> {
    const { tokens, calls, text, thinking } = progress
    if (prompt.mark === '' || tokens.length === 0 || this.answers === null) return false
    // An answer is no worse for being forgotten.
    const isFound = await this.answers.ids.remember(prompt, tokens, signal).catch(() => {
      signal.throwIfAborted()
      return false
    })
    if (calls.length === 0) return isFound && prompt.landings.at(-1)?.landmark === 'promptEnd'
    const { thinking: tags, takesWrittenCalls } = this.dialect
    if (!takesWrittenCalls) return false
    const tokenizer = this.text.tokenizer as Tokenizer
    const raw = tokenizer.decode(tokens, { skipSpecial: true })
    const thought = tags === null ? -1 : raw.indexOf(tags.close)
    const after = tags === null || thought < 0 ? raw : raw.slice(thought + tags.close.length)
    const answer = this.answers.calls.remember(prompt.scope, text, calls, { thinking, text: after.replace(/^\n+/, '') })
    if (!isFound || answer === null) return false
    return await prompt.isRepeated(answer, tokenizer.decode(tokens), signal).catch(() => {
      signal.throwIfAborted()
      return false
    })
  }

  /** What there is of an answer already, and whether it thinks. */
  private beginning({ prefill, thinkingPrefill: thought, thinking }: ChatOptions) {
    const thinks = this.dialect.thinking !== null
    // A thought that is over, of another model: as templates do with those of earlier answers.
    const thinkingPrefill = prefill && !thinks ? '' : thought
    if (thinkingPrefill && !thinks) throw new OptionError('thinkingPrefill', thinkingPrefill, 'a model that thinks')
    return { prefill, thinkingPrefill, thinking: thinkingPrefill ? thinking || true : thinking }
  }

  private needWorkers(): TextWorkers {
    if (this.text.workers === null) {
      throw new TokenizerError(`${this.model.name}: has no tokenizer.json, so only token-level calls work`)
    }
    return this.text.workers
  }

  /** What the model's answers to messages are written in. */
  private get dialect(): Dialect {
    return this.text.template?.dialect ?? PLAIN
  }

  private promptBuilder(): PromptBuilder {
    const workers = this.needWorkers()
    const { template } = this.text
    if (template === null) {
      throw new TemplateError(`${this.model.name}: has no chat template; raw completion works without one`)
    }
    const turns = this.hasStore ? STORED_TURNS : 0
    return new PromptBuilder(workers, template, this.answers as AnswerMemory, this.model.contextLength, turns)
  }
}

/** How far into the prompt the states reach that other prompts than this very one can go on from. */
function lastShared({ landings }: Prompt): number {
  return landings.findLast(({ landmark }) => landmark !== 'prompt')?.position ?? 0
}

function draftUsage({ guesses, acceptedGuesses: accepted }: AnswerProgress): Usage['drafts'] {
  return { accepted, rejected: guesses - accepted }
}

function atLeastOne(option: string, value: number): number {
  if (!Number.isInteger(value) || value < 1) throw new OptionError(option, value, 'a whole number from 1')
  return value
}

/** The one line that is logged per request. */
function requestLine(usage: Usage, missed: string, outcome: string): string {
  const { promptTokens, cachedTokens, newTokens, answerTokens, promptSeconds, answerSeconds, drafts } = usage
  const parts = [
    `prompt ${promptTokens} = ${cachedTokens} cached + ${newTokens} new${missed === '' ? '' : ` (${missed})`}`,
    `prefill ${rate(newTokens, promptSeconds)}`,
    `answer ${answerTokens}, decode ${rate(answerTokens, answerSeconds)}`,
    ...(drafts === undefined ? [] : [`${drafts.accepted} of ${drafts.accepted + drafts.rejected} guesses right`]),
    outcome,
  ]
  return parts.join(' · ')
}

/** The same for vectors. */
function embeddingLine(inputs: number, tokens: number, seconds: number): string {
  return `${inputs} ${inputs === 1 ? 'embedding' : 'embeddings'}, ${tokens} tokens · ${rate(tokens, seconds)}`
}

function rate(tokens: number, seconds: number): string {
  const perSecond = tokens / Math.max(seconds, 1e-4)
  return `${perSecond < 100 ? perSecond.toPrecision(3) : Math.round(perSecond)} tok/s`
}
