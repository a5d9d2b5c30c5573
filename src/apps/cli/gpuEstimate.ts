// What to expect of a GPU of some size: the plan that the engine makes for it, and the speed of that split under even
// routing, which is the worst case. Pure: `inspect` and `doctor` tell it sizes and rates.
import type { ModelConfig } from '../../index.js'
import {
  CHUNK_TOKENS,
  type GpuPlan,
  hostSide,
  type MemoryFacts,
  type ModelBytes,
  type PlannedState,
  planGpu,
  STAGING_BUFFERS,
  secondsPerToken,
  type TokenLoad,
} from '../../internal.js'

/** The largest buffer that kernels see on most GPUs. */
const MAX_BUFFER_BYTES = 2 ** 31 - 4
/** What a layer waits for the processors besides their work (performance-log.md). */
const WAIT_SECONDS = 100e-6
/** Threads that read, for both sides, and what threads take. */
const READERS = 22
const THREAD_BYTES = { compute: 11e6, reader: 7.5e6 }

export interface GpuMachine {
  readonly gpuBytes: number
  readonly memory: MemoryFacts
  readonly cores: number
  readonly gpuWeightsPerSecond: number // bytes of weights that the GPU gets through
  readonly weightsPerSecond: number // the same for the processors
  readonly readsPerSecond: number // bytes, random reads of one expert each
}

export interface GpuEstimate {
  readonly gpuBytes: number
  readonly missing: number // bytes that the GPU lacks for what it must hold; 0: it is large enough
  readonly experts: { readonly gpu: number; readonly memory: number; readonly disk: number }
  readonly line: string // the plan in words
  readonly tokensPerSecond: number | null // null: the GPU cannot run it
}

export function estimateGpu(
  config: ModelConfig,
  bytes: ModelBytes,
  machine: GpuMachine,
  planned: PlannedState,
  expertsPerToken = config.expertsPerToken,
): GpuEstimate {
  const plan = planFor(config, bytes, machine, planned, expertsPerToken)
  const { gpuSlots: gpu, diskExperts: disk, missing, line } = plan
  const memory = Math.min(plan.memorySlots, config.moeLayers.length * config.numExperts - gpu - disk)
  const about = { gpuBytes: machine.gpuBytes, missing, line, experts: { gpu, memory, disk } }
  if (missing > 0) return { ...about, tokensPerSecond: null }
  const load = loadOf(config, plan, expertsPerToken)
  const wanted = config.moeLayers.length * expertsPerToken
  // Where memory has no room for experts, those that are missing go to the GPU as they are read.
  const byProcessors = memory > 0 ? load.expertsMissed : 0
  const byGpu = bytes.resident - bytes.embedding + (wanted - byProcessors) * bytes.expert
  const seconds = secondsPerToken(load, bytes.expert, {
    computeSeconds: byGpu / machine.gpuWeightsPerSecond,
    waitSeconds: WAIT_SECONDS,
    cpuBytesPerSecond: memory > 0 ? machine.weightsPerSecond : Number.POSITIVE_INFINITY,
    uploadBytesPerSecond: Number.POSITIVE_INFINITY, // beside the token
    diskBytesPerSecond: machine.readsPerSecond,
  })
  return { ...about, tokensPerSecond: 1 / seconds }
}

function planFor(
  config: ModelConfig,
  bytes: ModelBytes,
  machine: GpuMachine,
  planned: PlannedState,
  expertsPerToken: number,
): GpuPlan {
  const { expert } = bytes
  const host = hostSide({
    config,
    forms: [{ block: null, bits: 4, group: 64, precision: 'fast' }],
    expertSize: expert,
    expertsPerToken,
    maxRows: CHUNK_TOKENS,
    memory: machine.memory,
    cores: machine.cores,
    readers: READERS,
    threadBytes: THREAD_BYTES,
    stagingBytes: 2 * STAGING_BUFFERS * expert,
  })
  const model = {
    config,
    expertsPerToken,
    precision: 'fast' as const,
    weightBytes: bytes.resident,
    slotBytes: expert,
    recordBytes: expert,
    hasShared: config.sharedExpertIntermediateSize === config.moeIntermediateSize,
    planned,
    maxBufferBytes: MAX_BUFFER_BYTES,
  }
  return planGpu({ model, gpuBytes: machine.gpuBytes, host })
}

/** Of a token whose experts are anybody with equal chance. */
function loadOf({ moeLayers, numExperts }: ModelConfig, plan: GpuPlan, expertsPerToken: number): TokenLoad {
  const layers = moeLayers.length
  if (layers === 0) return { layersMissed: 0, expertsMissed: 0, expertsRead: 0, expertsPromoted: 0 }
  const all = layers * numExperts
  const onGpu = Math.min(1, plan.gpuSlots / all)
  const wanted = layers * expertsPerToken
  return {
    layersMissed: layers * (1 - onGpu ** expertsPerToken),
    expertsMissed: wanted * (1 - onGpu),
    expertsRead: (wanted * plan.diskExperts) / all,
    expertsPromoted: 0,
  }
}
