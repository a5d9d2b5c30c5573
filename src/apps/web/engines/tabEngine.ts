// The model in this very tab, by `moeflux/browser`: its bytes come from the host of the page and stay on the device.
import type { EngineFrame, ModelEntry } from '#moeflux/apps/browser/page.js'
import { withPromptProgress } from '#moeflux/apps/browser/page.js'
import {
  type BrowserModel,
  type BrowserSession,
  ContextLimitError,
  ExpertReadError,
  FetchError,
  openModel,
} from '#moeflux/browser.js'
import { type ChatEngine, type ChatEvent, type ChatRequest, EngineFailure, type EngineShape } from './chatEngine.js'

export interface TabProgress {
  readonly phase: string
  readonly loaded: number
  readonly total: number
}

export interface TabStorage {
  readonly bytes: number
  readonly experts: number
  readonly quota: number // 0: not known
  /** Another tab has opened the model first: it alone may change what is kept. */
  readonly isOthers: boolean
}

export interface TabLoadOptions {
  readonly backend: 'auto' | 'webgpu' | 'wasm'
  readonly headers: Readonly<Record<string, string>>
  readonly signal: AbortSignal
  onProgress(progress: TabProgress): void
  onNotice(line: string): void
}

export class TabEngine implements ChatEngine {
  readonly place = 'tab'
  readonly shape: EngineShape

  private constructor(
    private readonly model: BrowserModel,
    private readonly session: BrowserSession,
  ) {
    const { info } = model
    this.shape = {
      model: info.name,
      backend: info.backend,
      description: info.backendDescription,
      isLoaded: true,
      layers: info.config.moeLayers.length,
      experts: info.config.numExperts,
      expertsPerToken: info.expertsPerToken,
      layerNumbers: info.config.moeLayers,
      layerKinds: info.config.moeLayers.map(layer => info.config.layerKinds[layer]),
      contextLength: info.contextLength,
    }
  }

  static async load(entry: ModelEntry, options: TabLoadOptions): Promise<TabEngine> {
    const url = new URL(`models/${entry.path}`, document.baseURI)
    try {
      const model = await openModel(url, options)
      return new TabEngine(model, await model.createSession())
    } catch (error) {
      throw failureOf(error)
    }
  }

  async *chat(
    { messages, settings, begun, begunThinking }: ChatRequest,
    signal: AbortSignal,
  ): AsyncGenerator<ChatEvent> {
    const { temperature, topP, topK, minP, seed, maxTokens, thinking } = settings
    const open = (onPromptProgress: (done: number, total: number, cached: number) => void) =>
      this.session.chat({
        messages,
        temperature: temperature ?? undefined,
        topP: topP ?? undefined,
        topK: topK ?? undefined,
        minP: minP ?? undefined,
        seed: seed ?? undefined,
        maxTokens: maxTokens ?? undefined,
        thinking: thinking && (begun === '' || begunThinking !== ''),
        prefill: begun,
        thinkingPrefill: begunThinking,
        signal,
        onPromptProgress,
      })
    try {
      for await (const event of withPromptProgress(open)) {
        if (event.type === 'text' || event.type === 'thinking') yield { type: event.type, text: event.text }
        else if (event.type === 'promptProgress') yield { ...event, type: 'progress', kind: 'prompt' }
        else if (event.type === 'usage') yield { type: 'usage', usage: event }
        else if (event.type === 'end') yield { type: 'end', reason: event.reason === 'length' ? 'length' : 'stop' }
      }
    } catch (error) {
      if (signal.aborted) throw error
      throw failureOf(error)
    }
  }

  watch(onFrame: (frame: EngineFrame) => void, onState: (isLive: boolean) => void): () => void {
    onState(true)
    return this.model.watch(onFrame)
  }

  async storage(): Promise<TabStorage> {
    const { cache, cachedBytes, expertsCached, quota } = await this.model.storage()
    const isOthers = cache === 'read-only'
    return { bytes: cachedBytes, experts: expertsCached, quota: quota ?? 0, isOthers }
  }

  clearCache(): Promise<void> {
    return this.model.clearCache()
  }

  close(): Promise<void> {
    return this.model.close()
  }
}

function failureOf(error: unknown): EngineFailure {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof ContextLimitError) return new EngineFailure('contextFull', sentence(message))
  if (error instanceof ExpertReadError && message.includes('cannot be reached')) {
    const { layer, expert } = error
    return new EngineFailure(
      'offline',
      `A part of the model that this answer needs (expert ${expert} of layer ${layer}) is not on this device yet, and its host cannot be reached.`,
    )
  }
  if (error instanceof FetchError) {
    const detail = message.replace(`${error.url}: `, '')
    return new EngineFailure('offline', `${sentence(detail)} (${new URL(error.url).pathname}).`)
  }
  return new EngineFailure('other', sentence(message))
}

function sentence(message: string): string {
  return `${message.charAt(0).toUpperCase()}${message.slice(1)}`
}
