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
} from './backends/backend.js'
export type { ModelStats, TierStats, TierUse } from './backends/stats.js'
export * from './base/errors.js'
export type { Embedding, EmbedOptions } from './chat/embedding.js'
export type { EventStream } from './chat/eventStream.js'
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
} from './chat/events.js'
export { type GenerateOptions, type Model, type OpenModelOptions, openModel } from './chat/openModel.js'
export type { Session, SessionOptions, SessionState } from './chat/session.js'
export type { StoreChoice, StoreOptions, TierState } from './chat/stateStores.js'
export type { BackendChoice } from './engine/chooseBackend.js'
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
export type { EngineStats } from './engine/model.js'
export type { StateReader } from './engine/snapshot.js'
export {
  decodeEnvelope,
  type EnvelopeBody,
  type EnvelopeContent,
  encodeEnvelope,
} from './engine/snapshotEnvelope.js'
export type { KeptState } from './engine/state.js'
export type { ConvertResult } from './files/convert/convert.js'
export type { PackOptions } from './files/convert/packFolder.js'
export type { DownloadOptions } from './files/hub/downloadFile.js'
export type { HubOptions } from './files/hub/hubClient.js'
export { type PullOptions, type PullProgress, type PullResult, pullModel } from './files/hub/pullModel.js'
export type { PullPlan } from './files/hub/pullPlan.js'
export { demoModelPath, findModel, listModels, removeModel } from './files/models/modelStore.js'
export type { StoredModel } from './files/models/storedModels.js'
export type { Metadata } from './files/packed/manifest.js'
export type { ByteSource, Folder } from './files/source.js'
export type { TokenConstraint } from './grammar/constraint.js'
export type { AnswerRequest, ResponseFormat, ToolChoice } from './grammar/constraintFactory.js'
export type { ToolSchema } from './grammar/source/toolCallGrammar.js'
export type { ModelConfig } from './model/config.js'
export type { LayerKind, LayerShape } from './model/layers.js'
export type { Quantization } from './model/quantizationConfig.js'
export { FolderStore, type FolderStoreOptions } from './stores/folderStore.js'
export type { TierCounters, TierOptions } from './stores/guardedStore.js'
export { openStore } from './stores/nodeOpenStore.js'
export type { PrefixStore } from './stores/prefixStore.js'
export type { StoredBody } from './stores/stateObjects.js'
export type { SamplerOptions } from './text/sampling/sampler.js'
export type { ChatRequest } from './text/template/chatRenderer.js'
export type {
  ChatMessage,
  ContentPart,
  FunctionDefinition,
  Role,
  ToolCallMessage,
  ToolDefinition,
} from './text/template/messages.js'
export type { TemplateVariables } from './text/template/templateEngine.js'
export type { Detokenizer, DetokenizerOptions } from './text/tokenizer/detokenizer.js'
export type { AddedToken, EncodeOptions, Tokenizer } from './text/tokenizer/tokenizer.js'
