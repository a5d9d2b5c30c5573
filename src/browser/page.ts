// The second door of `src/browser`, for the page of this package alone: what it needs of the engine beyond `moeflux/browser`.
export type { EngineFrame } from '../engine/engineFrame.js'
export { decodeFrame } from '../engine/frameCodec.js'
export { latencyBoundMs } from '../experts/readCounters.js'
export { withPromptProgress } from '../session/promptProgress.js'
export type { ModelEntry } from '../storage/siteIndex.js'
