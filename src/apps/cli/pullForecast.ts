// What a pull will take and what to expect of the model on this machine, in numbers.
import { PLANNED_TOKENS, READ_SPEED, WEIGHTS_PER_THREAD } from '../../base/defaults.js'
import type { ModelConfig } from '../../index.js'
import {
  type Estimate,
  estimateModel,
  freeSpace,
  type ModelBytes,
  missingBytes,
  type PackingOptions,
  type PullPlan,
  type PullSize,
  sizePull,
  storeRoot,
} from '../../internal.js'
import { thisMachine } from './machine.js'

export interface PullForecast {
  readonly leftBytes: number // to be downloaded
  readonly size: PullSize
  readonly neededBytes: number // of disk, besides what is there
  readonly freeBytes: number | null // on the disk of the store
  readonly estimate: Estimate
}

/** `there`: bytes that an earlier pull has brought. */
export async function forecastPull(
  plan: PullPlan,
  there: number,
  signal: AbortSignal,
  packing: PackingOptions = {},
): Promise<PullForecast> {
  const size = await sizePull(plan, packing, signal)
  return {
    leftBytes: Math.max(0, plan.downloadBytes - there),
    size,
    neededBytes: missingBytes(size, there),
    freeBytes: await freeSpace(storeRoot()),
    estimate: estimateHere(size.config, size.bytes),
  }
}

/** The plan of `inspect`, with a disk that is taken to be good. */
export function estimateHere(config: ModelConfig, bytes: ModelBytes): Estimate {
  const { freeMemory, threads } = thisMachine()
  const rates = { memory: freeMemory, weightsPerSecond: WEIGHTS_PER_THREAD * threads, readsPerSecond: READ_SPEED }
  return estimateModel(config, bytes, rates, Math.min(PLANNED_TOKENS, config.maxPositionEmbeddings))
}
