// What threads beside a GPU take of the machine's memory, for the plan: the workspace of their math, the threads, the
// readers, and what the program and the GPU's driver keep on this side. Pure.
import type { MemoryFacts } from '../../base/memoryFacts.js'
import type { ModelConfig } from '../../model/config.js'
import type { HostSide } from '../plan.js'
import { alignUp, MAX_BANK_BYTES } from './memory/bank.js'
import { SLOT_ALIGN } from './memory/bankLayout.js'
import { type InputForm, layoutScratch, type Scratch } from './memory/scratch.js'
import { garbageBytes, PROGRAM_BYTES } from './plan.js'

/** Compiled pipelines, memory that the driver maps, its own threads. */
const DRIVER_BYTES = 250e6

export interface HostShape {
  readonly config: ModelConfig
  readonly forms: readonly InputForm[] // of experts, see expertForms
  readonly expertSize: number
  readonly expertsPerToken: number
  readonly threads: number
  readonly maxRows: number // of a job
  readonly bankLimit?: number
}

export interface HostScratch {
  readonly config: ModelConfig // without vocabulary and layers: no logits here, no mixers and no dense blocks that need room
  readonly scratch: Scratch
  readonly normBytes: number // of a layer
  readonly homeBytes: number // before the first slot of the first bank
  readonly slotBytes: number
}

export function hostScratch({
  forms,
  expertSize,
  expertsPerToken,
  threads,
  maxRows,
  ...shape
}: HostShape): HostScratch {
  const config = { ...shape.config, vocabSize: 16, layers: [], moeLayers: [], draftHead: null }
  const scratch = layoutScratch({ config, expertsPerToken, chunkTokens: maxRows, threads, forms })
  const normBytes = alignUp(config.hiddenSize * 4, 64)
  const homeBytes = scratch.bytes + Math.max(config.numLayers, config.expertLayers.length) * normBytes
  return { config, scratch, normBytes, homeBytes, slotBytes: alignUp(expertSize, SLOT_ALIGN) }
}

export interface HostSideRequest extends Omit<HostShape, 'threads'> {
  readonly memory: MemoryFacts
  readonly expertMemory?: number // asked for
  readonly threads?: number // asked for
  readonly cores: number
  readonly readers: number // threads, of the tier and of the GPU's own reads
  readonly threadBytes: { readonly compute: number; readonly reader: number }
  readonly stagingBytes: number // of experts on their way to the GPU
}

/** More threads lose more at barriers than they win: a layer's missing experts are few. */
const MOST_THREADS = 8

export function hostThreads(cores: number): number {
  return Math.min(MOST_THREADS, cores)
}

export function hostSide(request: HostSideRequest): HostSide {
  const { config, memory, expertMemory, readers, threadBytes } = request
  const threads = request.threads ?? hostThreads(request.cores)
  const { scratch, homeBytes, slotBytes } = hostScratch({ ...request, threads })
  const bankLimit = request.bankLimit ?? MAX_BANK_BYTES
  return {
    memory,
    expertMemory,
    slotBytes,
    threads: { count: threads, bytes: threadBytes.compute },
    way: {
      slotCost: slotBytes * (1 + scratch.bytes / Math.max(slotBytes, bankLimit - scratch.bytes)),
      parts: [
        { what: 'workspace', bytes: homeBytes },
        { what: `${threads + readers} threads`, bytes: threads * threadBytes.compute + readers * threadBytes.reader },
        { what: 'staging', bytes: request.stagingBytes },
        { what: 'the program and the GPU driver', bytes: PROGRAM_BYTES + DRIVER_BYTES + garbageBytes(config) },
      ],
      notice: null,
    },
  }
}
