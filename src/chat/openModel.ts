// The public `openModel`: the engine's model together with the text side of its folder, and the sessions on it.
import { TokenizerError } from '../base/errors.js'
import { EngineModel, type ModelParts } from '../engine/model.js'
import { type EngineFittings, type OpenModelOptions as EngineOptions, openModelParts } from '../engine/openEngine.js'
import type { PackedModel } from '../files/packed/packedModel.js'
import type { Folder } from '../files/source.js'
import { asksForForm } from '../grammar/checkRequest.js'
import type { TokenConstraint } from '../grammar/constraint.js'
import type { AnswerRequest, ConstraintFactory } from '../grammar/constraintFactory.js'
import type { StartGrammarWorker } from '../grammar/workers/grammarMessages.js'
import { familyNamed } from '../model/families/families.js'
import { endTokenIds } from '../text/dialects/endTokens.js'
import { findDialect } from '../text/dialects/findDialect.js'
import { readGenerationConfig } from '../text/sampling/generationConfig.js'
import { loadChatTemplate } from '../text/template/chatTemplate.js'
import { loadTokenizer, type Tokenizer } from '../text/tokenizer/tokenizer.js'
import { type StartTextWorker, type TextWorker, TextWorkers } from '../text/workers/textWorkers.js'
import type { Embedding, EmbedOptions } from './embedding.js'
import type { EventStream } from './eventStream.js'
import type { Answer, ChatOptions, OpenConstraint } from './events.js'
import type { TextParts } from './runRequest.js'
import { Session, type SessionOptions } from './session.js'

export interface OpenModelOptions extends EngineOptions {
  /** Where sessions keep states of prompts beyond their own life, unless they are told otherwise. */
  readonly store?: SessionOptions['store']
}

/** What is not for users: see `EngineFittings`. */
export interface Fittings extends EngineFittings {
  /** Starts the workers that render chat templates and encode text, where they are not threads of Node. */
  readonly startTextWorker?: StartTextWorker
  /** The same for the workers that make grammars and walk them. */
  readonly startGrammarWorker?: StartGrammarWorker
}

/** What the helpers take: messages, or a prompt that becomes one message of a user. */
export type GenerateOptions = Omit<ChatOptions, 'messages'> & { readonly system?: string } & (
    | { readonly prompt: string }
    | { readonly messages: ChatOptions['messages'] }
  )

export class Model extends EngineModel {
  private readonly sessions = new Set<Session>()
  private ownSession: Session | null = null

  constructor(
    parts: ModelParts,
    private readonly text: TextParts,
    /** Ends what the text side runs. */
    private readonly closeText: () => Promise<void>,
    private readonly store?: SessionOptions['store'],
  ) {
    super(parts)
  }

  /** Null for a model without one: only token-level calls work then. */
  get tokenizer(): Tokenizer | null {
    return this.text.tokenizer
  }

  /** The tokens of a text, in which control tokens count as such. Nothing else waits, however long the text is. */
  async countTokens(text: string, options: { readonly signal?: AbortSignal } = {}): Promise<number> {
    const { workers } = this.text
    if (workers === null)
      throw new TokenizerError(`${this.name}: has no tokenizer.json, so only token-level calls work`)
    return await workers.count(text, {}, options.signal)
  }

  /** Conversations with a prefix cache of their own. */
  createSession(options: SessionOptions = {}): Session {
    this.checkOpen()
    const session: Session = new Session(this, this.text, { ...options, store: options.store ?? this.store }, () =>
      this.sessions.delete(session),
    )
    this.sessions.add(session)
    return session
  }

  /** Streams one answer, over a session that all such calls share. */
  stream(options: GenerateOptions): EventStream {
    this.ownSession ??= this.createSession()
    return this.ownSession.chat(chatOptions(options))
  }

  /** Vectors of texts: the means of the last hidden states over their tokens, of length 1. */
  embed(inputs: readonly (string | readonly number[])[], options: EmbedOptions = {}): Promise<Embedding[]> {
    this.ownSession ??= this.createSession()
    return this.ownSession.embed(inputs, options)
  }

  /** One whole answer. */
  generate(options: GenerateOptions): Promise<Answer> {
    return this.stream(options).answer()
  }

  override async close(): Promise<void> {
    await Promise.all([...this.sessions].map(session => session.close()))
    await super.close()
    await this.closeText()
  }
}

/** Opens a packed, MLX or HF folder, a GGUF file, or a model of the local store by its name; raw ones are packed once into the cache. */
export async function openModel(folder: string | Folder, options: OpenModelOptions = {}): Promise<Model> {
  return await openModelWith(folder, options, {})
}

export async function openModelWith(
  folder: string | Folder,
  options: OpenModelOptions,
  fittings: Fittings,
): Promise<Model> {
  const loaded: { text?: TextParts } = {}
  try {
    const parts = await openModelParts(folder, options, fittings, async packed => {
      loaded.text = await readTextParts(packed, fittings.startTextWorker ?? startNodeWorker)
    })
    const text = loaded.text as TextParts
    const constraints = new LazyConstraints(parts, text, fittings.startGrammarWorker)
    const close = async () => {
      text.workers?.close()
      await constraints.close()
    }
    const openConstraint: OpenConstraint = (request, signal) => constraints.open(request, signal)
    return new Model(parts, { ...text, openConstraint }, close, options.store)
  } catch (error) {
    loaded.text?.workers?.close()
    throw error
  }
}

/** Constrained decoding is loaded when the first answer asks for it. */
class LazyConstraints {
  private factory: Promise<ConstraintFactory> | null = null

  constructor(
    private readonly parts: ModelParts,
    private readonly text: TextParts,
    private readonly startWorker: StartGrammarWorker | undefined,
  ) {}

  async open(request: AnswerRequest, signal?: AbortSignal): Promise<TokenConstraint | null> {
    if (!asksForForm(request) && !request.tools?.some(tool => tool.strict)) return null
    this.factory ??= this.load()
    return (await this.factory).open(request, signal)
  }

  async close(): Promise<void> {
    await (await this.factory)?.close()
  }

  private async load(): Promise<ConstraintFactory> {
    const { ConstraintFactory } = await import('../grammar/constraintFactory.js')
    const { vocabSize, eosTokenIds } = this.parts.packed.config
    const { tokenizer, template } = this.text
    const dialect = template?.dialect ?? findDialect(null)
    const ends = endTokenIds(eosTokenIds, dialect, tokenizer as Tokenizer)
    const options = { startWorker: this.startWorker }
    return new ConstraintFactory(tokenizer as Tokenizer, vocabSize, ends, dialect, options)
  }
}

async function readTextParts({ folder, config }: PackedModel, startWorker: StartTextWorker): Promise<TextParts> {
  const tokenizer = await loadTokenizer(folder, config.vocabSize)
  const workers = tokenizer && new TextWorkers(startWorker, tokenizer)
  const { dialect } = familyNamed(config.family)
  const template = workers && (await loadChatTemplate(folder, workers, dialect))
  return { tokenizer, workers, template, defaults: await readGenerationConfig(folder), openConstraint: null }
}

async function startNodeWorker(): Promise<TextWorker> {
  const { startNodeTextWorker } = await import('../text/workers/nodeStartTextWorker.js')
  return startNodeTextWorker()
}

function chatOptions(options: GenerateOptions): ChatOptions {
  const { system, ...rest } = options
  const before = system === undefined ? [] : [{ role: 'system', content: system }]
  const messages = 'messages' in rest ? rest.messages : [{ role: 'user', content: rest.prompt }]
  return { ...rest, messages: [...before, ...messages] }
}
