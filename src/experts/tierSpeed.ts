// How long a token takes when some of its experts are computed on the GPU, some by the processors from memory, and some are
// read from disk first. Simple on purpose: one thing after the other, as the slowest of machines would do it; what overlaps
// makes the real thing faster.

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

/** Tokens of a prompt from which an expert is sooner sent to the GPU than computed by the processors. */
export function tokensWorthAnUpload({ cpuBytesPerSecond, uploadBytesPerSecond }: TierSpeeds): number {
  return Math.max(2, Math.ceil(cpuBytesPerSecond / uploadBytesPerSecond))
}
