// How long a token takes when some of its experts are computed on the GPU, some by the processors from memory, and some are
// read from disk first. Simple on purpose: one thing after the other, as the slowest of machines would do it; what overlaps
// makes the real thing faster.
import type { PromptTimes } from './promptShare.js'

const TOKEN_MORE = 1 / 7 // what one more token of an expert takes, over the first: weights are read once
const MOVE_UPLOADS = 2 // what a move costs: an upload, and a read of the one who leaves
const LEAST_USES = 2
const MOST_USES = 16 // a longer past does not tell more (docs/performance-log.md)

export interface TierSpeeds {
  readonly computeSeconds: number // of a token whose experts are all on the GPU
  readonly waitSeconds: number // of a layer for the processors' part, besides their work: a round trip
  readonly cpuBytesPerSecond: number // of experts that the processors compute for one token
  readonly uploadBytesPerSecond: number
  readonly diskBytesPerSecond: number
}

/** What a token needs on average. */
export interface TokenLoad {
  readonly layersMissed: number // layers with an expert that is not on the GPU
  readonly expertsMissed: number // experts that are not on the GPU
  readonly expertsRead: number // those of them that are on disk
  readonly expertsPromoted: number
}

export function secondsPerToken(load: TokenLoad, expertBytes: number, speeds: TierSpeeds): number {
  return (
    speeds.computeSeconds +
    load.layersMissed * speeds.waitSeconds +
    (load.expertsMissed * expertBytes) / speeds.cpuBytesPerSecond +
    (load.expertsRead * expertBytes) / speeds.diskBytesPerSecond +
    (load.expertsPromoted * expertBytes) / speeds.uploadBytesPerSecond
  )
}

/** How a prompt's experts are shared out where speeds are known and single times are not. */
export function promptTimes(expertBytes: number, { cpuBytesPerSecond, uploadBytesPerSecond }: TierSpeeds): PromptTimes {
  const expertSeconds = expertBytes / cpuBytesPerSecond
  return { uploadSeconds: expertBytes / uploadBytesPerSecond, expertSeconds, tokenSeconds: TOKEN_MORE * expertSeconds }
}

/** Uses on the GPU instead of the processors that are worth a move. */
export function usesWorthAMove(uploadSeconds: number, expertSeconds: number): number {
  const uses = Math.round((MOVE_UPLOADS * uploadSeconds) / expertSeconds)
  return Number.isFinite(uses) ? Math.min(MOST_USES, Math.max(LEAST_USES, uses)) : MOST_USES
}
