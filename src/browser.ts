// The engine in a tab: `moeflux/browser`. The page gets a thin client; everything heavy runs in workers.
export {
  type BrowserChatOptions,
  type BrowserCompleteOptions,
  type BrowserGenerateOptions,
  type BrowserModel,
  type BrowserSession,
  type BrowserSessionOptions,
  type OpenOptions,
  openModel,
} from './apps/browser/browserModel.js'
export type { BrowserStats, EngineOptions, ModelInfo, StorageReport } from './apps/browser/protocol.js'
export type { BackendName, Precision, Progress } from './backends/backend.js'
export type { ModelStats, TierStats, TierUse } from './backends/stats.js'
export * from './base/errors.js'
export * from './base/memoryErrors.js'
export type { Embedding, EmbedOptions } from './chat/embedding.js'
export type { EventStream } from './chat/eventStream.js'
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
} from './chat/events.js'
export type { GenerateOptions } from './chat/openModel.js'
export type { SessionOptions } from './chat/session.js'
export type { DraftStats, Drafts } from './engine/draftGovernor.js'
export type { EngineFrame } from './engine/engineFrame.js'
export type { ExpertTraffic } from './files/pieces/recordSource.js'
export type { ModelConfig } from './model/config.js'
export type { LayerKind, LayerShape } from './model/layers.js'
export type { Quantization } from './model/quantizationConfig.js'
export type { SamplerOptions } from './text/sampling/sampler.js'
export type {
  ChatMessage,
  ContentPart,
  FunctionDefinition,
  Role,
  ToolCallMessage,
  ToolDefinition,
} from './text/template/messages.js'
