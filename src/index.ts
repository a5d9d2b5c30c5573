// The public surface of the package, and nothing else.
export type { BackendName, LayerProbe, Precision, ProbeRequest, ProbeResult, Progress } from './compute/backend.js'
export type { ModelStats } from './compute/stats.js'
export type { TokenConstraint } from './constrain/constraint.js'
export type { AnswerRequest, ResponseFormat, ToolChoice } from './constrain/constraintFactory.js'
export type { ToolSchema } from './constrain/toolCallGrammar.js'
export type {
  Context,
  ContextOptions,
  EvalOptions,
  EvaluateOptions,
  Evaluation,
  PromptOptions,
  RoutingChunk,
  TokenOptions,
} from './engine/context.js'
export type { EngineFrame } from './engine/engineMonitor.js'
export type { KeptState } from './engine/keptState.js'
export {
  decodeEnvelope,
  type EnvelopeBody,
  type EnvelopeContent,
  encodeEnvelope,
} from './engine/snapshotEnvelope.js'
export * from './errors.js'
export { type PullOptions, type PullProgress, type PullResult, pullModel } from './hub/pullModel.js'
export type { ModelConfig } from './model/config.js'
export type { LayerKind } from './model/layers.js'
export type { EventStream } from './session/eventStream.js'
export type {
  Answer,
  AnswerOptions,
  ChatOptions,
  CompleteOptions,
  EndReason,
  OpenConstraint,
  SessionEvent,
  TokenInfo,
  TokenLogprobs,
  ToolCall,
  ToolCallEvent,
  Usage,
} from './session/events.js'
export { type GenerateOptions, type Model, type OpenModelOptions, openModel } from './session/openModel.js'
export type { Session, SessionOptions, SessionState } from './session/session.js'
export type { StoreChoice, StoreOptions, TierState } from './session/stateStores.js'
export { FolderStore, type FolderStoreOptions } from './states/folderStore.js'
export { openStore } from './states/openStore.js'
export type { PrefixStore } from './states/prefixStore.js'
export type { TierCounters } from './states/storeTier.js'
export type { ByteSource, Folder } from './storage/byteSource.js'
export { demoModelPath } from './storage/demoModel.js'
export { removeModel, storedModels as listModels } from './storage/modelStore.js'
export type { StoredModel } from './storage/storedModels.js'
export type {
  ChatMessage,
  ContentPart,
  FunctionDefinition,
  Role,
  ToolCallMessage,
  ToolDefinition,
} from './text/messages.js'
export type { SamplerOptions } from './text/sampler.js'
export type { AddedToken, EncodeOptions, Tokenizer } from './text/tokenizer.js'
