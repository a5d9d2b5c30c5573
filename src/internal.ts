// The second door, `moeflux/internal`: what the commands that plan and measure need of the engine beyond the public surface. No
// promise is made about it to others: names come and go with what is inside.
export { dropFromPageCache } from './bench/coldFiles.js'
export { type DiskMeasurement, measureDisk } from './bench/diskSpeed.js'
export { type BenchResult, type PhaseCounters, runBench } from './bench/runBench.js'
export { measureScratchDisk } from './bench/scratchDisk.js'
export { ensureSyntheticModel } from './bench/syntheticModel.js'
export { parseSyntheticSpec } from './bench/syntheticSpec.js'
export { tokenSourceFor } from './bench/tokenSource.js'
export { TokenStream } from './bench/tokenStream.js'
export { MOST_GUESSES, type PlannedState } from './compute/backend.js'
export type { TierStats, TierUse } from './compute/stats.js'
export { hostSide } from './compute/wasm/hostSide.js'
export { hasRelaxedSimd } from './compute/wasm/kernels.js'
export { loadKernels } from './compute/wasm/loadKernels.js'
export { STAGING_BUFFERS } from './compute/webgpu/expertUploads.js'
export { type AdapterDescription, probeAdapters } from './compute/webgpu/gpuDevice.js'
export { CHUNK_TOKENS } from './compute/webgpu/gpuParts.js'
export { type GpuPlan, planGpu } from './compute/webgpu/gpuPlan.js'
export { countWithin } from './engine/countWithin.js'
export type { DraftStats, Drafts } from './engine/draftGovernor.js'
export type { PolicyName } from './experts/evictionPolicy.js'
export { slotsInBudget } from './experts/expertCache.js'
export { DEFAULT_FILLS_PER_STEP, DEFAULT_MOVES_PER_STEP } from './experts/expertTiers.js'
export type { MemoryFacts } from './experts/memoryFacts.js'
export { availableMemory } from './experts/nodeMemory.js'
export { optimalHits } from './experts/optimalHits.js'
export { chooseReadMode } from './experts/readMode.js'
export { decodeTrace, encodeTrace, joinTraces, type RoutingTrace, type TraceStep } from './experts/routingTrace.js'
export { simulateTiers, type TierRules, type TierSizes } from './experts/simulateTiers.js'
export { simulateTrace } from './experts/simulateTrace.js'
export { promptTimes, secondsPerToken, type TierSpeeds, type TokenLoad, usesWorthAMove } from './experts/tierSpeed.js'
export { type RelayCost, relayCosts } from './gguf/relayCosts.js'
export { type PullPlan, planConfig, planPull } from './hub/pullPlan.js'
export {
  type Estimate,
  estimateModel,
  fourBitBytes,
  type MachineRates,
  type ModelBytes,
  usableMemory,
} from './model/estimate.js'
export type { ExpertTables } from './model/expertLayout.js'
export { storedBytes } from './model/matrixParts.js'
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
export type { QuantBits } from './model/tensors.js'
export { findWellKnown, WELL_KNOWN_MODELS } from './model/wellKnownModels.js'
export { isRemote } from './remote/remoteFolder.js'
export { type Fittings, openModelWith } from './session/openModel.js'
export { freeSpace, writing } from './storage/diskFull.js'
export { openFileSource } from './storage/fileSource.js'
export { DEMO_NAME, locateModel, notFound, storeRoot } from './storage/modelStore.js'
export { openNodeFolder } from './storage/nodeFolder.js'
export { openPacked, readConfig, readMetadata } from './storage/openPacked.js'
export { isGgufFile } from './storage/openSource.js'
export { isPackedName, MANIFEST_NAME, METADATA_NAME } from './storage/packedNames.js'
export { makeFolder, packFolder } from './storage/packFolder.js'
export { preparePacked } from './storage/preparePacked.js'
export { distinctEntries, type ModelEntry, modelEntry, type SiteIndex } from './storage/siteIndex.js'
export { verifyModel } from './storage/verify.js'
export type { Comparison, VerifyReport } from './storage/verifyReport.js'
export { Sampler, tokenLogprobs } from './text/sampler.js'
export { loadTokenizer } from './text/tokenizer.js'
