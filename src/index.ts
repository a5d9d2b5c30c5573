// The public surface of the package, and nothing else.
export type { BackendName, LayerProbe, Precision, ProbeRequest, ProbeResult, Progress } from './compute/backend.js'
export type { ModelStats } from './compute/stats.js'
export type {
  Context,
  ContextOptions,
  EvalOptions,
  EvaluateOptions,
  Evaluation,
  PromptOptions,
  RoutingChunk,
} from './engine/context.js'
export type { KeptState } from './engine/keptState.js'
export type { OpenModelOptions } from './engine/openModel.js'
export {
  decodeEnvelope,
  type EnvelopeBody,
  type EnvelopeContent,
  encodeEnvelope,
} from './engine/snapshotEnvelope.js'
export * from './errors.js'
export type { LayerKind, ModelConfig } from './model/config.js'
export { type Model, openModel } from './session/openModel.js'
export type { ByteSource, Folder } from './storage/byteSource.js'
export { demoModelPath } from './storage/demoModel.js'
