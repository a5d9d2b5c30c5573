// Conversations over one model: messages or text in, a stream of events out. Each request evaluates
// a sequence of its own and resumes from states that earlier requests kept at turn boundaries. What
// a request does is in runRequest.ts.
import { ClosedError, OptionError, TemplateError, TokenizerError } from '../base/errors.js'
import { joinSignals } from '../base/joinSignals.js'
import type { EngineModel } from '../engine/model.js'
import { asksForForm } from '../grammar/checkRequest.js'
import type { AnswerRequest } from '../grammar/constraintFactory.js'
import type { ToolSchema } from '../grammar/source/toolCallGrammar.js'
import { recurrentBytes } from '../model/sizes.js'
import { findDialect } from '../text/dialects/findDialect.js'
import { plainMessages, plainTools } from '../text/template/messages.js'
import type { TextWorkers } from '../text/workers/textWorkers.js'
import { type Embedding, type EmbedOptions, embeddedIds, embedTokens } from './embedding.js'
import { EventStream } from './eventStream.js'
import type { AnswerOptions, ChatOptions, CompleteOptions } from './events.js'
import { AnswerMemory } from './memory/rawAnswerCache.js'
import { parameterTypes } from './parameterTypes.js'
import { PrefixCache } from './prefixCache.js'
import { PromptBuilder } from './promptBuilder.js'
import { rawIds, rawPrompt } from './rawPrompt.js'
import {
  type PreparedRequest,
  RequestSemaphore,
  rate,
  runRequest,
  type SessionParts,
  type TextParts,
} from './runRequest.js'
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

const DEFAULT_SEQUENCES = 8
const DEFAULT_BYTES = 2 ** 30
const PLAIN = findDialect(null) // raw text is no chat: nothing in it is thinking, or a call
const STORED_TURNS = 2 // before the last, whose states a store is asked for: one may not have been written in time

export class Session {
  private readonly parts: SessionParts
  private readonly hasStore: boolean
  private readonly byteBudget: number
  private readonly running = new Map<Pick<AbortController, 'abort'>, Promise<void>>()
  private closed: Promise<void> | null = null

  constructor(
    private readonly model: EngineModel,
    private readonly text: TextParts,
    options: SessionOptions = {},
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
    const { tokenizer, workers } = text
    const notes = this.hasStore ? stores : null
    this.parts = {
      model,
      text,
      dialect: text.template?.dialect ?? PLAIN,
      permits: new RequestSemaphore(conversations),
      cache: new StateCache(new PrefixCache({ bytes, conversations }), stores, warn),
      answers: tokenizer === null || workers === null ? null : new AnswerMemory(tokenizer, workers, notes),
      log: line => options.onLog?.(line),
    }
  }

  /** Answers messages through the model's chat template. */
  chat(options: ChatOptions): EventStream {
    return this.stream(options, async signal => {
      const { messages, breakpoints } = plainMessages(options.messages)
      const tools = options.toolChoice === 'none' ? [] : plainTools(options.tools)
      const { dialect } = this.parts
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
      const mayThink = !!thinking && !prompt.insideThinking && dialect.thinking !== null
      const wanted = {
        responseFormat: options.responseFormat,
        tools: tools.map(tool => tool.function as ToolSchema),
        toolChoice: options.toolChoice ?? 'auto',
        parallelToolCalls: options.parallelToolCalls ?? true,
        insideThinking: prompt.insideThinking,
        ...(mayThink && { mayThink }),
      }
      return { prompt, dialect, splitter, wanted }
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
    const { permits, cache, log } = this.parts
    const ending = new AbortController()
    const end = this.begin(ending)
    const { signal, release } = joinSignals(ending.signal, ...(options.signal ? [options.signal] : []))
    try {
      const hasText = inputs.some(input => typeof input === 'string')
      const workers = hasText ? this.needWorkers() : null
      const all: (readonly number[])[] = []
      for (const input of inputs) {
        all.push(await embeddedIds(input, workers, this.model.contextLength, { ...options, signal }))
      }
      await permits.acquire(signal)
      try {
        const started = performance.now()
        const embeddings: Embedding[] = []
        for (const ids of all) {
          const vector = await cache.withRoom(() => embedTokens(this.model, ids, signal))
          embeddings.push({ vector, tokens: ids.length })
        }
        const tokens = all.reduce((sum, ids) => sum + ids.length, 0)
        log(embeddingLine(all.length, tokens, (performance.now() - started) / 1000))
        return embeddings
      } finally {
        permits.release()
      }
    } finally {
      release()
      end()
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
    const { permits, cache } = this.parts
    return {
      running: permits.taken,
      waiting: permits.waiting,
      states: cache.states,
      bytes: cache.bytes,
      byteBudget: this.byteBudget,
      found: { ...cache.found },
      tiers: cache.tiers,
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
    await this.parts.cache.close()
    this.onClosed()
  }

  private stream(options: AnswerOptions, prepare: (signal: AbortSignal) => Promise<PreparedRequest>): EventStream {
    return new EventStream((signal, stream) => {
      const begin = () => {
        const end = this.begin(stream)
        return () => {
          end()
          if (!this.closed) this.parts.cache.whenIdle()
        }
      }
      return runRequest({ session: this.parts, options, begin, prepare, signal })
    }, options.signal)
  }

  /** Registers work that `close` aborts and waits for. Returns what ends it. */
  private begin(work: Pick<AbortController, 'abort'>): () => void {
    if (this.closed) throw new ClosedError('session')
    let finished = () => {}
    this.running.set(work, new Promise(resolve => (finished = resolve)))
    return () => {
      this.running.delete(work)
      finished()
    }
  }

  /** What there is of an answer already, and whether it thinks. */
  private beginning({ prefill, thinkingPrefill: thought, thinking }: ChatOptions) {
    const thinks = this.parts.dialect.thinking !== null
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

  private promptBuilder(): PromptBuilder {
    const workers = this.needWorkers()
    const { template } = this.text
    if (template === null) {
      throw new TemplateError(`${this.model.name}: has no chat template; raw completion works without one`)
    }
    const turns = this.hasStore ? STORED_TURNS : 0
    return new PromptBuilder(workers, template, this.parts.answers as AnswerMemory, this.model.contextLength, turns)
  }
}

function atLeastOne(option: string, value: number): number {
  if (!Number.isInteger(value) || value < 1) throw new OptionError(option, value, 'a whole number from 1')
  return value
}

/** The one line that is logged per call of `embed`. */
function embeddingLine(inputs: number, tokens: number, seconds: number): string {
  return `${inputs} ${inputs === 1 ? 'embedding' : 'embeddings'}, ${tokens} tokens · ${rate(tokens, seconds)}`
}
