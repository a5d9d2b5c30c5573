// The public surface of the package, and nothing else.
export type {
  BackendName,
  DraftRequest,
  GuessedRows,
  KvPart,
  LayerProbe,
  LinearLayerState,
  Precision,
  ProbeRequest,
  ProbeResult,
  Progress,
  StateImport,
} from './compute/backend.js'
export type { BackendChoice } from './compute/chooseBackend.js'
export type { ModelStats, TierStats, TierUse } from './compute/stats.js'
export type { TokenConstraint } from './constrain/constraint.js'
export type { AnswerRequest, ResponseFormat, ToolChoice } from './constrain/constraintFactory.js'
export type { ToolSchema } from './constrain/toolCallGrammar.js'
export type { Context } from './engine/context.js'
export type {
  CheckOptions,
  ContextOptions,
  EvalOptions,
  EvaluateOptions,
  Evaluation,
  GuessOptions,
  PromptOptions,
  RoutingChunk,
  TokenOptions,
} from './engine/contextOptions.js'
export type { DraftStats, Drafts } from './engine/draftGovernor.js'
export type { EngineFrame } from './engine/engineFrame.js'
export type { KeptState } from './engine/keptState.js'
export type { EngineStats } from './engine/model.js'
export {
  decodeEnvelope,
  type EnvelopeBody,
  type EnvelopeContent,
  encodeEnvelope,
} from './engine/snapshotEnvelope.js'
export type { StateReader } from './engine/snapshotStream.js'
export * from './errors.js'
export type { DownloadOptions } from './hub/downloadFile.js'
export type { HubOptions } from './hub/hubClient.js'
export { type PullOptions, type PullProgress, type PullResult, pullModel } from './hub/pullModel.js'
export type { PullPlan } from './hub/pullPlan.js'
export type { ModelConfig } from './model/config.js'
export type { LayerKind, LayerShape } from './model/layers.js'
export type { Quantization } from './model/quantizationConfig.js'
export type { Embedding, EmbedOptions } from './session/embedding.js'
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
export type { StoredBody } from './states/stateObjects.js'
export type { TierCounters, TierOptions } from './states/storeTier.js'
export type { ByteSource, Folder } from './storage/byteSource.js'
export type { ConvertResult } from './storage/convert.js'
export { demoModelPath } from './storage/demoModel.js'
export type { Metadata } from './storage/manifest.js'
export { findModel, listModels, removeModel } from './storage/modelStore.js'
export type { PackOptions } from './storage/packFolder.js'
export type { StoredModel } from './storage/storedModels.js'
export type { ChatRequest } from './text/chatRenderer.js'
export type { Detokenizer, DetokenizerOptions } from './text/detokenizer.js'
export type {
  ChatMessage,
  ContentPart,
  FunctionDefinition,
  Role,
  ToolCallMessage,
  ToolDefinition,
} from './text/messages.js'
export type { SamplerOptions } from './text/sampler.js'
export type { TemplateVariables } from './text/templateEngine.js'
export type { AddedToken, EncodeOptions, Tokenizer } from './text/tokenizer.js'
