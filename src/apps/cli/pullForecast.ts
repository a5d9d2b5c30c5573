// What a pull will take and what to expect of the model on this machine, in numbers.
import { PLANNED_TOKENS, READ_SPEED, WEIGHTS_PER_THREAD } from '../../base/defaults.js'
import type { ModelConfig } from '../../index.js'
import {
  type Estimate,
  estimateModel,
  fourBitBytes,
  type ModelBytes,
  type PullPlan,
  planConfig,
} from '../../internal.js'
import { thisMachine } from './machine.js'

export interface PullForecast {
  readonly leftBytes: number // to be downloaded
  readonly packedBytes: number
  readonly estimate: Estimate | null // where the shapes are known
}

/** `there`: bytes that an earlier pull has brought. */
export async function forecastPull(plan: PullPlan, there: number, signal: AbortSignal): Promise<PullForecast> {
  const about = await planConfig(plan, signal)
  const leftBytes = Math.max(0, plan.downloadBytes - there)
  // What is quantized already is packed as it is.
  if (about === null) return { leftBytes, packedBytes: plan.downloadBytes, estimate: null }
  const bytes = fourBitBytes(about.config)
  const packedBytes = about.isQuantized ? plan.downloadBytes : bytes.allExperts + bytes.resident
  return { leftBytes, packedBytes, estimate: estimateHere(about.config, bytes) }
}

/** The plan of `inspect`, with a disk that is taken to be good. */
export function estimateHere(config: ModelConfig, bytes: ModelBytes): Estimate {
  const { freeMemory, threads } = thisMachine()
  const rates = { memory: freeMemory, weightsPerSecond: WEIGHTS_PER_THREAD * threads, readsPerSecond: READ_SPEED }
  return estimateModel(config, bytes, rates, Math.min(PLANNED_TOKENS, config.maxPositionEmbeddings))
}
