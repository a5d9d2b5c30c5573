// The public surface of the package, and nothing else: the calls, the types that callers write, and the error classes.
export type { Progress } from './backends/backend.js'
export type { ModelStats } from './backends/stats.js'
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
  Usage,
} from './chat/events.js'
export { type GenerateOptions, type Model, type OpenModelOptions, openModel } from './chat/openModel.js'
export type { Session, SessionOptions, SessionState } from './chat/session.js'
export type { StoreOptions } from './chat/stateStores.js'
export type { BackendChoice } from './engine/chooseBackend.js'
export type { Context } from './engine/context.js'
export type {
  ContextOptions,
  EvalOptions,
  EvaluateOptions,
  Evaluation,
  PromptOptions,
  RoutingChunk,
  TokenOptions,
} from './engine/contextOptions.js'
export type { EngineFrame } from './engine/engineFrame.js'
export type { EngineStats } from './engine/model.js'
export type { KeptState } from './engine/state.js'
export { type PullOptions, type PullProgress, type PullResult, pullModel } from './files/hub/pullModel.js'
export { demoModelPath, findModel, listModels, removeModel } from './files/models/modelStore.js'
export type { StoredModel } from './files/models/storedModels.js'
export type { ByteSource, Folder } from './files/source.js'
export type { TokenConstraint } from './grammar/constraint.js'
export type { ResponseFormat, ToolChoice } from './grammar/constraintFactory.js'
export type { ModelConfig } from './model/config.js'
export { FolderStore, type FolderStoreOptions } from './stores/folderStore.js'
export { openStore } from './stores/nodeOpenStore.js'
export type { PrefixStore } from './stores/prefixStore.js'
export type { SamplerOptions } from './text/sampling/sampler.js'
export type { ChatMessage, ContentPart, Role, ToolCallMessage, ToolDefinition } from './text/template/messages.js'
export type { Tokenizer } from './text/tokenizer/tokenizer.js'
