// The model in this very tab.
import type { EngineFrame } from '#moeflux/engine/engineMonitor.js'
import type { ModelEntry } from '#moeflux/storage/siteIndex.js'
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
}

export interface TabLoadOptions {
  readonly headers: Readonly<Record<string, string>>
  readonly signal: AbortSignal
  onProgress(progress: TabProgress): void
  onNotice(line: string): void
}

export interface TabEngine extends ChatEngine {
  readonly place: 'tab'
  readonly shape: EngineShape
  chat(request: ChatRequest, signal: AbortSignal): AsyncIterable<ChatEvent>
  watch(onFrame: (frame: EngineFrame) => void, onState: (isLive: boolean) => void): () => void
  storage(): Promise<TabStorage>
  clearCache(): Promise<void>
  close(): Promise<void>
}

export const TabEngine = {
  async load(entry: ModelEntry, _options: TabLoadOptions): Promise<TabEngine> {
    throw new EngineFailure('other', `This build cannot run ${entry.name} in the tab.`)
  },
}
