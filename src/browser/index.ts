// The engine in a tab: `moeflux/browser`. The page gets a thin client; everything heavy runs in workers.
export type { BackendName, Precision, Progress } from '../compute/backend.js'
export type { ModelStats, TierStats, TierUse } from '../compute/stats.js'
export type { DraftStats, Drafts } from '../engine/draftGovernor.js'
export type { EngineFrame } from '../engine/engineFrame.js'
export * from '../errors.js'
export type { ModelConfig } from '../model/config.js'
export type { LayerKind, LayerShape } from '../model/layers.js'
export type { Quantization } from '../model/quantizationConfig.js'
export type { Embedding, EmbedOptions } from '../session/embedding.js'
export type { EventStream } from '../session/eventStream.js'
export type {
  Answer,
  ChatOptions,
  CompleteOptions,
  EndReason,
  SessionEvent,
  TokenInfo,
  TokenLogprobs,
  ToolCall,
  ToolCallEvent,
  Usage,
} from '../session/events.js'
export type { GenerateOptions } from '../session/openModel.js'
export type { SessionOptions } from '../session/session.js'
export type {
  ChatMessage,
  ContentPart,
  FunctionDefinition,
  Role,
  ToolCallMessage,
  ToolDefinition,
} from '../text/messages.js'
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
export type { ExpertTraffic } from './recordSource.js'
