// The second door, `moeflux/internal`: what the commands that plan and measure need of the engine beyond the public surface. No
// promise is made about it to others: names come and go with what is inside.
export { MOST_GUESSES, type PlannedState } from './backends/backend.js'
export type { TierStats, TierUse } from './backends/stats.js'
export { hostSide } from './backends/wasm/cpuTierPlan.js'
export { hasRelaxedSimd } from './backends/wasm/kernels.js'
export { loadKernels } from './backends/wasm/nodePlatform.js'
export { STAGING_BUFFERS } from './backends/webgpu/experts/loader.js'
export { CHUNK_TOKENS, type GpuPlan, planGpu } from './backends/webgpu/open/gpuPlan.js'
export { countWithin } from './base/countWithin.js'
export type { MemoryFacts } from './base/memoryFacts.js'
export { availableMemory } from './base/nodeMemory.js'
export { type Fittings, openModelWith } from './chat/openModel.js'
export type { DraftStats, Drafts } from './engine/draftGovernor.js'
export type { PolicyName } from './experts/evictionPolicy.js'
export { slotsInBudget } from './experts/expertCache.js'
export { DEFAULT_FILLS_PER_STEP, DEFAULT_MOVES_PER_STEP } from './experts/expertTiers.js'
export { type DiskMeasurement, measureDisk, measureScratchDisk } from './experts/readers/nodeDiskSpeed.js'
export { chooseReadMode } from './experts/readers/readMode.js'
export { promptTimes, secondsPerToken, type TierSpeeds, type TokenLoad, usesWorthAMove } from './experts/tierSpeed.js'
export { preparePacked } from './files/convert/nodePreparePacked.js'
export { makeFolder, packFolder } from './files/convert/packFolder.js'
export { freeSpace, writing } from './files/diskFull.js'
export { openFileSource } from './files/fileSource.js'
export { type RelayCost, relayCosts } from './files/gguf/repackCosts.js'
export { type PullPlan, planConfig, planPull } from './files/hub/pullPlan.js'
export { DEMO_NAME, locateModel, notFound, storeRoot } from './files/models/modelStore.js'
export { openNodeFolder } from './files/nodeFolder.js'
export { isGgufFile } from './files/openSource.js'
export { openPacked, readConfig, readMetadata } from './files/packed/openPacked.js'
export { isPackedName, MANIFEST_NAME, METADATA_NAME } from './files/packed/packedNames.js'
export { distinctEntries, type ModelEntry, modelEntry, type SiteIndex } from './files/packed/siteIndex.js'
export { isRemote } from './files/remote/nodeRemoteFolder.js'
export { verifyModel } from './files/verify/storageVerify.js'
export type { Comparison, VerifyReport } from './files/verifyReport.js'
export { type AdapterDescription, probeAdapters } from './gpu/device/gpuDevice.js'
export { type BenchResult, dropFromPageCache, type PhaseCounters, runBench } from './lab/bench/runBench.js'
export { TokenStream, tokenSourceFor } from './lab/bench/tokenSource.js'
export { ensureSyntheticModel } from './lab/synthetic/syntheticModel.js'
export { parseSyntheticSpec } from './lab/synthetic/syntheticSpec.js'
export { optimalHits } from './lab/traces/optimalHits.js'
export { decodeTrace, encodeTrace, joinTraces, type RoutingTrace, type TraceStep } from './lab/traces/routingTrace.js'
export { simulateTiers, type TierRules, type TierSizes } from './lab/traces/simulateTiers.js'
export { simulateTrace } from './lab/traces/simulateTrace.js'
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
export type { QuantBits } from './model/tensors.js'
export { findWellKnown, WELL_KNOWN_MODELS } from './model/wellKnownModels.js'
export { Sampler, tokenLogprobs } from './text/sampling/sampler.js'
export { loadTokenizer } from './text/tokenizer/tokenizer.js'
