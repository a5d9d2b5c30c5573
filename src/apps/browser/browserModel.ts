// A model that runs in this tab, as the page sees it: the same calls and events as in Node, computed in a worker, so that
// the page never waits. What needs the engine is asked of it by message.
import { OptionError } from '../../base/errors.js'
import type { Embedding, EmbedOptions } from '../../chat/embedding.js'
import { EventStream } from '../../chat/eventStream.js'
import type { Answer, ChatOptions, CompleteOptions } from '../../chat/events.js'
import type { GenerateOptions } from '../../chat/openModel.js'
import type { SessionOptions } from '../../chat/session.js'
import type { EngineFrame } from '../../engine/engineFrame.js'
import { EngineClient, type EngineListeners, type StreamRequest } from './engineClient.js'
import type { BrowserStats, EmbedInputs, EngineOptions, ModelInfo, StorageReport } from './protocol.js'

export interface OpenOptions extends EngineOptions, EngineListeners {
  readonly signal?: AbortSignal
  /**
   * The folder `dist/apps/browser` of this package as the page's server has it, with the rest of `dist` around it. For bundlers
   * that leave workers out, such as esbuild and rollup.
   */
  readonly workers?: string | URL
}

export type BrowserSessionOptions = Omit<SessionOptions, 'store' | 'onLog' | 'onWarning'>

type Options<T> = Omit<T, 'openConstraint'>
export type BrowserChatOptions = Options<ChatOptions>
export type BrowserCompleteOptions = Options<CompleteOptions>
export type BrowserGenerateOptions = GenerateOptions extends infer T ? (T extends unknown ? Options<T> : never) : never

/** Opens a packed model folder on a server that answers range requests: 'https://host/models/demo/'. */
export async function openModel(url: string | URL, options: OpenOptions = {}): Promise<BrowserModel> {
  const { onProgress, onNotice, signal, workers, ...engine } = options
  signal?.throwIfAborted()
  const base = folderUrl(url)
  const { worker, address } = startEngine(workers)
  const client = new EngineClient(worker, address, { onProgress, onNotice })
  // Asked for here because workers cannot. Without it the browser may clear what is stored when the disk is full.
  if (engine.cache !== 'memory') void navigator.storage?.persist?.().catch(() => false)
  try {
    return new BrowserModel(client, await client.call('open', [base, engine], signal))
  } catch (error) {
    client.terminate()
    throw error
  }
}

const ENGINE_WORKER = 'engine.worker.js'

function startEngine(workers: string | URL | undefined): { worker: Worker; address: string } {
  if (workers === undefined) {
    // Spelled out, and once: bundlers look for these words, and add what they name to the page.
    const worker = new Worker(new URL('./engine.worker.js', import.meta.url), { type: 'module' })
    return { worker, address: new URL(ENGINE_WORKER, import.meta.url).href }
  }
  const url = new URL(ENGINE_WORKER, folderUrl(workers, 'workers', 'the address of a folder'))
  return { worker: new Worker(url, { type: 'module' }), address: url.href }
}

export class BrowserModel {
  constructor(
    private readonly client: EngineClient,
    /** Name, shapes, and the backend that it runs on. */
    readonly info: ModelInfo,
  ) {}

  /** Conversations with a prefix cache of their own. */
  async createSession(options: BrowserSessionOptions = {}): Promise<BrowserSession> {
    return new BrowserSession(this.client, await this.client.call('createSession', [options]))
  }

  /** Streams one answer, over a session that all such calls share. */
  stream(options: BrowserGenerateOptions): EventStream {
    return startStream(this.client, null, 'generate', options)
  }

  /** Vectors of texts, as in Node. */
  embed(inputs: EmbedInputs, options: EmbedOptions = {}): Promise<Embedding[]> {
    return embed(this.client, null, inputs, options)
  }

  /** One whole answer. */
  generate(options: BrowserGenerateOptions): Promise<Answer> {
    return this.stream(options).answer()
  }

  stats(): Promise<BrowserStats> {
    return this.client.call('stats', [])
  }

  /** What is kept in the browser's storage, and how much room there is. */
  storage(): Promise<StorageReport> {
    return this.client.call('storage', [])
  }

  /** Removes what is stored of this model, which goes on without. */
  clearCache(): Promise<void> {
    return this.client.call('clearCache', [])
  }

  /** The tokens of a text, in which control tokens count as such. */
  countTokens(text: string, options: { readonly signal?: AbortSignal } = {}): Promise<number> {
    return this.client.call('countTokens', [text], options.signal)
  }

  /** Calls `listener` with what the engine does, at most ten times a second, until the returned function is called. */
  watch(listener: (frame: EngineFrame) => void): () => void {
    return this.client.watch(listener)
  }

  /** Stops what runs and gives all memory back. */
  async close(): Promise<void> {
    try {
      await this.client.call('close', [])
    } catch {
      // the worker is gone already
    } finally {
      this.client.terminate()
    }
  }
}

export class BrowserSession {
  constructor(
    private readonly client: EngineClient,
    private readonly id: number,
  ) {}

  /** Answers messages through the model's chat template. */
  chat(options: BrowserChatOptions): EventStream {
    return startStream(this.client, this.id, 'chat', options)
  }

  /** Tokens of the prompt that `chat` would make of this. */
  countTokens(
    options: Pick<
      ChatOptions,
      'messages' | 'tools' | 'toolChoice' | 'thinking' | 'prefill' | 'thinkingPrefill' | 'signal'
    >,
  ): Promise<number> {
    const { signal, ...request } = options
    return this.client.call('countPrompt', [this.id, request], signal)
  }

  /** Goes on with raw text. */
  complete(options: BrowserCompleteOptions): EventStream {
    return startStream(this.client, this.id, 'complete', options)
  }

  /** Vectors of texts, as in Node. */
  embed(inputs: EmbedInputs, options: EmbedOptions = {}): Promise<Embedding[]> {
    return embed(this.client, this.id, inputs, options)
  }

  close(): Promise<void> {
    return this.client.call('closeSession', [this.id])
  }
}

function embed(client: EngineClient, session: number | null, inputs: EmbedInputs, options: EmbedOptions) {
  const { signal, ...rest } = options
  return client.call('embed', [session, inputs, rest], signal)
}

interface Started {
  readonly signal?: AbortSignal
  readonly onPromptProgress?: (done: number, total: number, cached: number) => void
}

function startStream(client: EngineClient, session: number | null, how: StreamRequest['how'], options: Started) {
  const { signal, onPromptProgress, ...rest } = options
  const request = { session, how, options: rest, onPromptProgress }
  return new EventStream(own => client.stream(request, own), signal)
}

/** A folder's address ends with a slash; a page may name it relative to itself. */
function folderUrl(url: string | URL, option = 'url', want = 'the address of a model folder'): string {
  let full: URL
  try {
    full = new URL(url, globalThis.location?.href)
  } catch {
    throw new OptionError(option, String(url), want)
  }
  if (!full.pathname.endsWith('/')) full.pathname += '/'
  full.search = ''
  full.hash = ''
  return full.href
}
