// The engine worker's side: opens a model from a server and its cache, and answers the page's calls. One model per worker,
// so that a page that lets go of a model gets all its memory back by ending the worker.
import type { Progress } from '../../backends/backend.js'
import type { WasmHost } from '../../backends/wasm/platform.js'
import { ClosedError, MoefluxError, messageOf, OptionError } from '../../base/errors.js'
import { parseByteSize } from '../../base/quantities.js'
import type { EventStream } from '../../chat/eventStream.js'
import { type Model, openModelWith } from '../../chat/openModel.js'
import type { Session } from '../../chat/session.js'
import { DIRECT_ALIGNMENT } from '../../experts/readers/readMode.js'
import type { PackedShapes } from '../../files/packed/openPacked.js'
import { ModelCache } from '../../files/pieces/modelCache.js'
import { WebFolder } from '../../files/pieces/webFolder.js'
import { RangeFetcher } from '../../files/rangeFetcher.js'
import type { StartGrammarWorker } from '../../grammar/workers/grammarMessages.js'
import { expertCount } from '../../model/sizes.js'
import type { StartTextWorker } from '../../text/workers/textWorkers.js'
import { tabMemory } from './browserPlatform.js'
import {
  type BrowserStats,
  type Calls,
  type EmbedInputs,
  type EngineOptions,
  EVENT_WINDOW,
  type FromEngine,
  type ModelInfo,
  packError,
  type StorageReport,
  type ToEngine,
} from './protocol.js'

/** The part of a tab's memory that experts take when nobody says how much. */
const EXPERT_SHARE = 0.6

export interface EngineEdges {
  readonly wasmHost: WasmHost
  readonly startTextWorker: StartTextWorker
  readonly startGrammarWorker: StartGrammarWorker
}

type Post = (message: FromEngine, transfer?: Transferable[]) => void

interface Opened {
  readonly model: Model
  readonly folder: WebFolder
  readonly shapes: PackedShapes
  readonly info: ModelInfo
}

export class EngineService {
  private opened: Opened | null = null
  private readonly sessions = new Map<number, Session>()
  private readonly cancels = new Map<number, AbortController>()
  private readonly credits = new Map<number, Credit>()
  private nextSession = 1
  private stopWatching: (() => void) | null = null

  constructor(
    private readonly post: Post,
    private readonly edges: EngineEdges,
  ) {}

  hear(message: ToEngine): void {
    if (message.kind === 'call') void this.answer(message)
    else if (message.kind === 'stream') void this.stream(message)
    else if (message.kind === 'taken') this.credits.get(message.id)?.give(message.count)
    else if (message.kind === 'cancel') this.cancels.get(message.id)?.abort()
    else this.watch(message.on)
  }

  private async answer({ id, name, args }: Extract<ToEngine, { kind: 'call' }>): Promise<void> {
    const cancel = new AbortController()
    this.cancels.set(id, cancel)
    try {
      const value = await this.call(name, args, cancel.signal)
      this.post({ kind: 'result', id, value })
    } catch (error) {
      this.post({ kind: 'error', id, error: packError(error) })
    } finally {
      this.cancels.delete(id)
    }
  }

  private call(name: keyof Calls, args: readonly unknown[], signal: AbortSignal): unknown {
    const [first, second, third] = args
    if (name === 'open') return this.open(first as string, second as EngineOptions, signal)
    if (name === 'stats') return this.stats()
    if (name === 'storage') return this.storage()
    if (name === 'clearCache') return this.need().folder.cache?.clear()
    if (name === 'createSession') {
      this.sessions.set(this.nextSession, this.need().model.createSession(first as object))
      return this.nextSession++
    }
    if (name === 'closeSession') return this.closeSession(first as number)
    if (name === 'countTokens') return this.need().model.countTokens(first as string, { signal })
    if (name === 'countPrompt') {
      return this.session(first as number).countTokens({ ...(second as { messages: [] }), signal })
    }
    if (name === 'embed') {
      const owner = first === null ? this.need().model : this.session(first as number)
      return owner.embed(second as EmbedInputs, { ...(third as object), signal })
    }
    return this.close()
  }

  private async open(url: string, options: EngineOptions, signal: AbortSignal): Promise<ModelInfo> {
    if (this.opened) throw new MoefluxError('BUSY', 'the engine has a model open')
    const onNotice = (line: string) => this.post({ kind: 'notice', line })
    const onProgress = (progress: Progress) => this.post({ kind: 'progress', progress })
    const { cache: where = 'opfs', expertMemory, headers, ...engine } = options
    if (where !== 'opfs' && where !== 'memory') throw new OptionError('cache', where, 'opfs, memory')
    const cache = where === 'opfs' ? await openCache(url, onNotice) : null
    try {
      const folder = new WebFolder(new RangeFetcher(url, headers), cache, onNotice)
      const shapes = await folder.prepare(options, signal)
      const known = {
        ...engine,
        expertMemory:
          expertMemory === undefined ? defaultExpertMemory(shapes) : parseByteSize(expertMemory, 'expertMemory'),
        onProgress,
        onNotice,
        signal,
      }
      const model = await openModelWith(folder, known, this.edges)
      await cache?.saveInfo()
      if (model.backend === 'wasm' && !this.edges.wasmHost.shared) {
        onNotice('this page is not cross-origin isolated, so the wasm backend has one thread')
      }
      const info = describe(url, model, shapes)
      this.opened = { model, folder, shapes, info }
      return info
    } catch (error) {
      cache?.close()
      throw error
    }
  }

  private async stream(message: Extract<ToEngine, { kind: 'stream' }>): Promise<void> {
    const { id, promptProgress } = message
    const cancel = new AbortController()
    const credit = new Credit(EVENT_WINDOW)
    this.cancels.set(id, cancel)
    this.credits.set(id, credit)
    try {
      const options = {
        ...message.options,
        signal: cancel.signal,
        onPromptProgress: promptProgress
          ? (done: number, total: number, cached: number) =>
              this.post({ kind: 'promptProgress', id, done, total, cached })
          : undefined,
      }
      for await (const event of this.start(message, options)) {
        this.post({ kind: 'event', id, event })
        await credit.take(cancel.signal)
      }
      this.post({ kind: 'result', id, value: null })
    } catch (error) {
      this.post({ kind: 'error', id, error: packError(error) })
    } finally {
      this.cancels.delete(id)
      this.credits.delete(id)
    }
  }

  private start({ session, how }: Extract<ToEngine, { kind: 'stream' }>, options: object): EventStream {
    if (session === null) return this.need().model.stream(options as Parameters<Model['stream']>[0])
    const own = this.session(session)
    return how === 'complete'
      ? own.complete(options as Parameters<Session['complete']>[0])
      : own.chat(options as Parameters<Session['chat']>[0])
  }

  private session(id: number): Session {
    const session = this.sessions.get(id)
    if (session === undefined) throw new ClosedError('session')
    return session
  }

  private watch(on: boolean): void {
    this.stopWatching?.()
    this.stopWatching = null
    if (!on || this.opened === null) return
    this.stopWatching = this.opened.model.watch(frame => {
      this.post({ kind: 'frame', frame }, [frame.routed.buffer as ArrayBuffer, frame.resident.buffer as ArrayBuffer])
    })
  }

  private stats(): BrowserStats {
    const { model, folder } = this.need()
    const { requests, bytes } = folder.fetcher.counters
    return { ...model.stats(), ...folder.traffic, networkRequests: requests, fetchedBytes: bytes }
  }

  private async storage(): Promise<StorageReport> {
    const { folder, shapes } = this.need()
    const { cache } = folder
    const estimate = await navigator.storage?.estimate?.().catch(() => null)
    return {
      cache: cache === null ? 'memory' : cache.writable ? 'opfs' : 'read-only',
      cachedBytes: (await cache?.bytes()) ?? 0,
      expertsCached: folder.expertsCached,
      experts: expertCount(shapes.config),
      usage: estimate?.usage ?? null,
      quota: estimate?.quota ?? null,
      persisted: (await navigator.storage?.persisted?.().catch(() => false)) ?? false,
    }
  }

  private async closeSession(session: number): Promise<void> {
    await this.sessions.get(session)?.close()
    this.sessions.delete(session)
  }

  private async close(): Promise<void> {
    this.watch(false)
    const { opened } = this
    this.opened = null
    await opened?.model.close()
    opened?.folder.cache?.close()
  }

  private need(): Opened {
    if (this.opened === null) throw new ClosedError('model')
    return this.opened
  }
}

/** Lets so many events be under way; more wait until the page has taken some. */
class Credit {
  private wake = () => {}

  constructor(private left: number) {}

  give(count: number): void {
    this.left += count
    this.wake()
  }

  async take(signal: AbortSignal): Promise<void> {
    this.left--
    while (this.left <= 0 && !signal.aborted) {
      await new Promise<void>(resolve => {
        this.wake = resolve
        signal.addEventListener('abort', () => resolve(), { once: true })
      })
    }
  }
}

async function openCache(url: string, onNotice: (line: string) => void): Promise<ModelCache | null> {
  try {
    return await ModelCache.open(url, onNotice)
  } catch (error) {
    onNotice(`nothing is kept in the browser's storage: ${messageOf(error)}`)
    return null
  }
}

/** All experts where they fit, else what a tab can spare. */
function defaultExpertMemory({ config, layout }: PackedShapes): number | undefined {
  const all = expertCount(config) * layout.expertSize
  // The least that a backend takes: experts begin at multiples of this.
  const least = 2 * config.expertsPerToken * Math.ceil(layout.expertSize / DIRECT_ALIGNMENT) * DIRECT_ALIGNMENT
  const room = Math.max(tabMemory() * EXPERT_SHARE, least)
  return all <= room ? undefined : Math.floor(room)
}

function describe(url: string, model: Model, { layout }: PackedShapes): ModelInfo {
  const { name, config, backend, backendDescription, vocabSize, contextLength } = model
  return {
    ...{ name, url, config, backend, backendDescription, vocabSize, contextLength },
    expertsPerToken: model.expertsPerToken,
    eosTokenIds: model.eosTokenIds,
    fingerprint: model.fingerprint,
    hasTokenizer: model.tokenizer !== null,
    expertBytes: layout.expertSize,
    residentBytes: model.stats().residentBytes,
  }
}
