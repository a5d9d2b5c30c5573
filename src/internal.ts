// The inner door, `moeflux/internal`: what commands and server need of the engine beyond the public surface. No promise is made
// about it to others: names come and go with what is inside.

export type { BackendName, Precision } from './backends/backend.js'
export { MOST_GUESSES, type PlannedState } from './backends/backend.js'
export { NO_EXPERT_STATS, type TierStats } from './backends/stats.js'
export { hostSide } from './backends/wasm/cpuTierPlan.js'
export { hasRelaxedSimd } from './backends/wasm/kernels.js'
export { loadKernels } from './backends/wasm/nodePlatform.js'
export { STAGING_BUFFERS } from './backends/webgpu/experts/loader.js'
export { CHUNK_TOKENS, type GpuPlan, planGpu } from './backends/webgpu/open/gpuPlan.js'
export { countWithin } from './base/countWithin.js'
export type { MemoryFacts } from './base/memoryFacts.js'
export { availableMemory } from './base/nodeMemory.js'
export type { AnswerOptions, ToolCallEvent } from './chat/events.js'
export { openModelWith } from './chat/openModel.js'
export { type PromptProgress, withPromptProgress } from './chat/promptProgress.js'
export type { TierState } from './chat/stateStores.js'
export type { DraftStats, Drafts } from './engine/draftGovernor.js'
export { mergeFrames } from './engine/engineFrame.js'
export { encodeFrame } from './engine/frameCodec.js'
export { decodeEnvelope, encodeEnvelope } from './engine/snapshotEnvelope.js'
export { type DiskMeasurement, measureDisk, measureScratchDisk } from './experts/readers/nodeDiskSpeed.js'
export { latencyBoundMs } from './experts/readers/readCounters.js'
export { chooseReadMode } from './experts/readers/readMode.js'
export { secondsPerToken, type TokenLoad } from './experts/tierSpeed.js'
export { preparePacked } from './files/convert/nodePreparePacked.js'
export { makeFolder, packFolder } from './files/convert/packFolder.js'
export type { PackingOptions } from './files/convert/packingPlan.js'
export { freeSpace, writing } from './files/diskFull.js'
export { openFileSource } from './files/fileSource.js'
export { type RelayCost, relayCosts } from './files/gguf/repackCosts.js'
export { type PullPlan, planPull } from './files/hub/pullPlan.js'
export { missingBytes, type PullSize, sizePull } from './files/hub/pullSize.js'
export { type FoundModel, searchHub } from './files/hub/searchHub.js'
export { hubReference } from './files/models/modelName.js'
export {
  type AbsentModel,
  DEMO_NAME,
  locateModel,
  locateNamed,
  notFound,
  storedModelNamed,
  storeRoot,
} from './files/models/modelStore.js'
export { openNodeFolder } from './files/nodeFolder.js'
export { isGgufFile } from './files/openSource.js'
export { openPacked, readConfig, readMetadata } from './files/packed/openPacked.js'
export { isPackedName, MANIFEST_NAME, METADATA_NAME } from './files/packed/packedNames.js'
export { distinctEntries, type ModelEntry, modelEntry, type SiteIndex, siteName } from './files/packed/siteIndex.js'
export { isRemote } from './files/remote/nodeRemoteFolder.js'
export { type Comparison, type VerifyReport, verifyModel } from './files/verify/verify.js'
export type { AdapterDescription } from './gpu/device/gpuDevice.js'
export {
  type AdapterProbe,
  driverKey,
  gpuDevices,
  probeAdaptersApart,
  quietDrivers,
} from './gpu/device/nodeAdapterProbe.js'
export {
  type Estimate,
  estimateModel,
  fourBitBytes,
  type MachineRates,
  type ModelBytes,
  usableMemory,
} from './model/estimate.js'
export type { ExpertTables } from './model/expertLayout.js'
export { presets } from './model/presets.js'
export {
  expertBytes,
  expertCount,
  FOUR_BIT,
  fullLayerCount,
  headResidentBytes,
  kvBytesPerToken,
  recurrentBytes,
  residentBytes,
  TWO_BIT,
} from './model/sizes.js'
export { storedBytes } from './model/tensorParts.js'
export { findWellKnown, SUGGESTED_MODEL, WELL_KNOWN_MODELS, type WellKnownModel } from './model/wellKnownModels.js'
export { WAIT_BOUNDS } from './stores/guardedStore.js'
export { roughSize } from './text/tokenizer/roughSize.js'
