// The engine in a tab: `moeflux/browser`. The page gets a thin client; everything heavy runs in workers.
export type { BackendName, Precision, Progress } from '../compute/backend.js'
export type { ModelStats } from '../compute/stats.js'
export type { EngineFrame } from '../engine/engineMonitor.js'
export * from '../errors.js'
export type { ModelConfig } from '../model/config.js'
export type { LayerKind } from '../model/layers.js'
export type { EventStream } from '../session/eventStream.js'
export type { Answer, EndReason, SessionEvent, TokenInfo, TokenLogprobs, Usage } from '../session/events.js'
export type { ChatMessage, ContentPart, Role, ToolCallMessage, ToolDefinition } from '../text/messages.js'
export type { SamplerOptions } from '../text/sampler.js'
export {
  type BrowserChatOptions,
  type BrowserCompleteOptions,
  type BrowserGenerateOptions,
  type BrowserModel,
  type BrowserSession,
  type BrowserSessionOptions,
  type OpenOptions,
  openModel,
} from './browserModel.js'
export type { BrowserStats, EngineOptions, ModelInfo, StorageReport } from './protocol.js'
