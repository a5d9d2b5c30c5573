// The second door of `src/apps/browser`, for the page of this package alone: what it needs of the engine beyond `moeflux/browser`.
export { withPromptProgress } from '../../chat/promptProgress.js'
export type { EngineFrame } from '../../engine/engineFrame.js'
export { decodeFrame } from '../../engine/frameCodec.js'
export { latencyBoundMs } from '../../experts/readers/readCounters.js'
export type { ModelEntry } from '../../files/packed/siteIndex.js'
