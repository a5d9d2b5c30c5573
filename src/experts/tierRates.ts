// What follows from how fast a machine's processors, its bus and its GPU are for a model's experts: on how many threads the
// processors compute, from how many tokens on an expert is sooner sent up, which moves pay, and whether a missing expert is
// computed where it lies or brought. Pure: who measures is open/measureTiers.ts.

import type { PromptRule } from './promptShare.js'
import { usesWorthAMove } from './tierSpeed.js'

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
export interface TokenAlone {
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

const TYPICAL_MISSES = 2 // experts of a layer that are not on a GPU with half of them or more
const NEARLY = 1.1 // as fast as the fastest: fewer threads leave processors to readers and drivers

/** `alone`: where processors may do everything, instead. */
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
