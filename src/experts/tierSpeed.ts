// Decisions from the measured speeds of a machine's CPU, bus, GPU and disk: how experts that are
// not on the GPU are computed, which of a prompt's go there, how long a token takes. Pure:
// open/measureTiers.ts measures.

const TYPICAL_MISSES = 2 // experts of a layer that are not on a GPU with half of them or more
const NEARLY = 1.1 // as fast as the fastest: fewer threads leave processors to readers and drivers
const MOVE_UPLOADS = 2 // what a move costs: an upload, and a read of the expert that is evicted
const LEAST_USES = 2
const MOST_USES = 16 // a longer past does not tell more (docs/dev/performance-log.md)
const TOKEN_MORE = 1 / 7 // time of one more token of an expert, over the first: weights are read once

export interface TierRates {
  /** Of the processors, by number of threads, ascending. */
  readonly processors: readonly ProcessorRates[]
  /** Of sending one expert to the GPU. */
  readonly uploadSeconds: number
  /** From a submission to its result, when there is next to nothing to compute. */
  readonly roundTripSeconds: number
}

export interface ProcessorRates {
  readonly threads: number
  readonly jobSeconds: number // whatever is in it
  readonly expertSeconds: number // an expert more, for one token
  readonly tokenSeconds: number // a token more of an expert
}

/** What a token takes of processors that do all of it. */
interface TokenAlone {
  readonly layers: number
  readonly expertsPerToken: number
  readonly residentExperts: number // bytes of all other weights over those of an expert
}

export interface TierWay {
  /** hybrid: missing experts are computed where they lie. upload: they are brought to the GPU. cpu: it only gets in the way. */
  readonly way: 'hybrid' | 'upload' | 'cpu'
  readonly threads: number
  readonly usesToPay: number
  /** Which experts of a prompt are brought. */
  readonly prompts: PromptRule
  /** For people. */
  readonly line: string
}

export interface PromptTimes {
  readonly uploadSeconds: number // of an expert
  readonly expertSeconds: number // of the processors, for one token
  readonly tokenSeconds: number // for each token more
}

/** By time, or from so many tokens of an expert on. */
export type PromptRule = { readonly times: PromptTimes } | { readonly uploadFromTokens: number }

/**
 * How many threads compute, from how many uses a move pays, and whether a missing expert is
 * computed where it is or uploaded. `alone`: what the CPU would have to do without a GPU, if it
 * may.
 */
export function chooseWay({ processors, uploadSeconds, roundTripSeconds }: TierRates, alone?: TokenAlone): TierWay {
  const best = Math.min(...processors.map(layerSeconds))
  const chosen = processors.find(rates => layerSeconds(rates) <= best * NEARLY) as ProcessorRates
  const { threads, expertSeconds, tokenSeconds } = chosen
  const missSeconds = Math.min(layerSeconds(chosen), TYPICAL_MISSES * uploadSeconds)
  // The GPU's own work is not even counted here.
  const isInTheWay = alone && alone.layers * (roundTripSeconds + missSeconds) > aloneSeconds(chosen, alone)
  const way = isInTheWay ? 'cpu' : missSeconds === layerSeconds(chosen) ? 'hybrid' : 'upload'
  const times = `an expert takes ${micros(expertSeconds)} to compute and ${micros(uploadSeconds)} to send to the GPU, which answers in ${micros(roundTripSeconds)}`
  const who = threads === 1 ? '1 thread' : `${threads} threads`
  return {
    way,
    threads,
    usesToPay: usesWorthAMove(uploadSeconds, expertSeconds),
    prompts: { times: { uploadSeconds, expertSeconds, tokenSeconds } },
    line: `${verdict(way, who)}: ${times}`,
  }
}

function verdict(way: TierWay['way'], who: string): string {
  if (way === 'cpu') return `${who} alone are faster than with a GPU that has no room for all experts`
  if (way === 'hybrid') return `${who} compute the experts that are not on the GPU`
  return `experts that are not on the GPU are sent to it when needed: ${who} would take longer to compute them`
}

function aloneSeconds({ jobSeconds, expertSeconds }: ProcessorRates, token: TokenAlone): number {
  const experts = token.layers * token.expertsPerToken + token.residentExperts
  return token.layers * jobSeconds + experts * expertSeconds
}

/** Of a layer that misses as much as is usual. */
function layerSeconds({ jobSeconds, expertSeconds }: ProcessorRates): number {
  return jobSeconds + TYPICAL_MISSES * expertSeconds
}

function micros(seconds: number): string {
  return `${Math.max(1, Math.round(seconds * 1e6))} µs`
}

/** Uses on the GPU instead of the processors that are worth a move. */
export function usesWorthAMove(uploadSeconds: number, expertSeconds: number): number {
  const uses = Math.round((MOVE_UPLOADS * uploadSeconds) / expertSeconds)
  return Number.isFinite(uses) ? Math.min(MOST_USES, Math.max(LEAST_USES, uses)) : MOST_USES
}

/**
 * Which of a prompt's missing experts go to the GPU; the CPU computes the others. Both work at the
 * same time, so experts are uploaded, those of most tokens first, as long as that lets the slower
 * side end sooner. They stay there until the GPU is full of better ones. `tokensOf`: of the experts
 * that are not on the GPU.
 */
export function expertsToBring(tokensOf: ReadonlyMap<number, number>, rule: PromptRule): Set<number> {
  if ('uploadFromTokens' in rule) {
    return new Set([...tokensOf].filter(([, tokens]) => tokens >= rule.uploadFromTokens).map(([expert]) => expert))
  }
  const { uploadSeconds, expertSeconds, tokenSeconds } = rule.times
  const secondsOf = (tokens: number) => expertSeconds + (tokens - 1) * tokenSeconds
  const byTokens = [...tokensOf].sort((a, b) => b[1] - a[1] || a[0] - b[0])
  let processors = byTokens.reduce((sum, [, tokens]) => sum + secondsOf(tokens), 0)
  let bus = 0
  const brought = new Set<number>()
  for (const [expert, tokens] of byTokens) {
    const without = processors - secondsOf(tokens)
    if (Math.max(without, bus + uploadSeconds) >= Math.max(processors, bus)) break
    processors = without
    bus += uploadSeconds
    brought.add(expert)
  }
  return brought
}

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

/**
 * One thing after the other, as the slowest of machines would do it; what overlaps makes it faster.
 */
export function secondsPerToken(load: TokenLoad, expertBytes: number, speeds: TierSpeeds): number {
  return (
    speeds.computeSeconds +
    load.layersMissed * speeds.waitSeconds +
    (load.expertsMissed * expertBytes) / speeds.cpuBytesPerSecond +
    (load.expertsRead * expertBytes) / speeds.diskBytesPerSecond +
    (load.expertsPromoted * expertBytes) / speeds.uploadBytesPerSecond
  )
}

/** Times for `expertsToBring`, if speeds are known and single times are not. */
export function promptTimes(expertBytes: number, { cpuBytesPerSecond, uploadBytesPerSecond }: TierSpeeds): PromptTimes {
  const expertSeconds = expertBytes / cpuBytesPerSecond
  return { uploadSeconds: expertBytes / uploadBytesPerSecond, expertSeconds, tokenSeconds: TOKEN_MORE * expertSeconds }
}
