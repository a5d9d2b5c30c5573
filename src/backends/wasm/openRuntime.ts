// Brings a packed model up on the wasm backend: decides where everything lies, fills the banks, starts readers and compute
// workers. What it returns is running and owns threads and memory until `close`.
import type { MemoryFacts } from '../../base/memoryFacts.js'
import type { StreamerPlan } from '../../experts/expertStreamer.js'
import { ReadRing } from '../../experts/readers/readRing.js'
import type { ExpertFiles, PackedModel } from '../../files/packed/packedModel.js'
import type { ModelConfig } from '../../model/config.js'
import { kvBytesPerToken, recurrentBytes } from '../../model/sizes.js'
import type { BackendOptions } from '../backend.js'
import { memoryLimitText, spareBytes } from '../plan.js'
import { threadNotice } from './clampThreads.js'
import type { SimdLevel } from './kernels.js'
import { HOME } from './layers/workerOps.js'
import { Bank } from './memory/bank.js'
import { type MemoryPlan, planMemory } from './memory/bankLayout.js'
import { loadWeights } from './memory/loadWeights.js'
import { type PlacedModel, placeModel } from './memory/placedModel.js'
import { HEAD_ROWS, type Rows } from './memory/scratch.js'
import { SequenceStore } from './memory/sequenceStore.js'
import { planOpening } from './plan.js'
import type { ComputePool, Readers, WasmHost, WasmInternals } from './platform.js'
import type { ComputeSetup } from './workers/computeLoop.js'
import { JobBoard } from './workers/jobBoard.js'
import { type BoardShape, COUNTERS } from './workers/jobLayout.js'
import { LocalCompute } from './workers/localCompute.js'
import { WorkerPool } from './workers/workerPool.js'

/** Sequence state that should fit beside one full context: other sequences and checkpoints. */
const SPARE_SETS = 16

type Shown =
  | 'model'
  | 'plan'
  | 'threads'
  | 'processors'
  | 'simd'
  | 'isShared'
  | 'board'
  | 'store'
  | 'pool'
  | 'plannedBytes'
  | 'mostGuesses'
  | 'noDrafts'

interface RuntimeParts extends Pick<WasmRuntime, Shown> {
  readonly banks: readonly Bank[]
  readonly readers: Readers | null // null: there are no experts
}

export class WasmRuntime {
  readonly model: PlacedModel
  readonly plan: MemoryPlan
  readonly threads: number
  readonly processors: number // that the threads share with others
  readonly simd: SimdLevel
  readonly isShared: boolean
  readonly board: JobBoard
  readonly store: SequenceStore
  readonly pool: ComputePool
  readonly plannedBytes: number // of memory, all in all
  readonly mostGuesses: number // that there is memory for
  readonly noDrafts: string | null // why there is no head for drafts, though one was asked for
  readonly ring: ReadRing | null
  private readonly banks: readonly Bank[]
  private readonly readers: Readers | null

  constructor(parts: RuntimeParts) {
    this.model = parts.model
    this.plan = parts.plan
    this.threads = parts.threads
    this.processors = parts.processors
    this.simd = parts.simd
    this.isShared = parts.isShared
    this.board = parts.board
    this.store = parts.store
    this.pool = parts.pool
    this.plannedBytes = parts.plannedBytes
    this.mostGuesses = parts.mostGuesses
    this.noDrafts = parts.noDrafts
    this.banks = parts.banks
    this.readers = parts.readers
    this.ring = parts.readers && new ReadRing(parts.readers.ring)
  }

  /** A row of logits of the last job; valid until the next one. */
  logitsRow(headRow: number): Float32Array {
    const { logits } = this.model.scratch
    const bank = this.banks[this.model.lmHead.bank]
    return bank.floats(logits.address + headRow * logits.stride, this.model.config.vocabSize)
  }

  /** u32 [chunk, K] of the last step, of a layer among those with experts. */
  routing(layer: number): Uint32Array {
    const picks = this.model.chunkTokens * this.model.expertsPerToken
    return this.banks[HOME].words(this.model.scratch.indices + layer * picks * 4, picks)
  }

  /** What these experts count for, [chunk, K]. */
  routerWeights(layer: number): Float32Array {
    const picks = this.model.chunkTokens * this.model.expertsPerToken
    return this.banks[HOME].floats(this.model.scratch.weights + layer * picks * 4, picks)
  }

  /** A copy of activations [count, dim] of the last job. */
  readRows(rows: Rows, count: number, dim: number): Float32Array {
    const out = new Float32Array(count * dim)
    for (let row = 0; row < count; row++) out.set(this.rowView(rows, row, dim), row * dim)
    return out
  }

  writeRows(rows: Rows, values: Float32Array, dim: number): void {
    for (let row = 0; row * dim < values.length; row++) {
      this.rowView(rows, row, dim).set(values.subarray(row * dim, (row + 1) * dim))
    }
  }

  /** A vector of the resident weights, as floats. */
  homeVector(address: number, length: number): Float32Array {
    return this.banks[HOME].floats(address, length)
  }

  /** A row of activations of the last job; valid until the next one. */
  rowView(rows: Rows, row: number, dim: number): Float32Array {
    return this.banks[HOME].floats(rows.address + row * rows.stride, dim)
  }

  async close(): Promise<void> {
    await this.pool.close()
    await this.readers?.close()
  }
}

export async function openRuntime(
  whole: PackedModel,
  options: BackendOptions,
  internals: WasmInternals,
  host: WasmHost,
): Promise<WasmRuntime> {
  const kernels = await host.loadKernels(internals.simd)
  const opening = planOpening(whole, options, internals, host)
  const { packed, files, layouts, memory, bankLimit, budget } = opening
  const { way, slots, bytes, notice } = budget
  const { config, tensors } = packed
  const { precision, expertsPerToken } = options
  const expertSize = files?.layout.expertSize ?? 0
  const threadsNotice = host.shared ? threadNotice(options.threads, host.processors) : null
  for (const line of [threadsNotice, notice]) if (line) options.onNotice?.(line)
  const { chunkTokens, threads, scratch } = way
  const plan = planMemory({
    config,
    tensors,
    expertSize,
    slotCount: slots,
    scratchBytes: scratch.bytes,
    bankLimit,
    stateBytes: Math.min(
      memory.bytes,
      config.maxPositionEmbeddings * kvBytesPerToken(config) + SPARE_SETS * recurrentBytes(config),
    ),
  })
  let slotsUsed = () => 0
  const mayGrow = (bytes: number) => {
    const untouched = (slots - slotsUsed()) * plan.slotBytes // planned for, and not taken from the system yet
    return whyNotGrow(host.memory(), bytes + untouched)
  }
  const banks = plan.bankFloors.map((floor, index) => new Bank(index, floor, bankLimit, host.shared, mayGrow))
  const model = placeModel(plan, tensors, layouts, { config, precision, expertsPerToken, chunkTokens, scratch })
  const store = new SequenceStore(config, banks, plan.stateBank)
  await loadWeights(packed.weights, tensors, plan, banks, options)

  const memories = banks.map(bank => bank.memory)
  const readers =
    files &&
    host.startReaders(
      {
        files: files.files,
        checksums: files.checksums,
        expertSize,
        memories,
        entries: slots,
        slotBytes: slots * plan.slotBytes,
        threads: way.readers,
      },
      options,
    )
  try {
    const boardShape: BoardShape = {
      threads,
      chunkTokens,
      layers: model.layers.length,
      fullLayers: store.fullLayers.length,
      moeLayers: config.expertLayers.length,
      experts: config.numExperts,
      headRows: HEAD_ROWS,
    }
    const { size } = new JobBoard(boardShape)
    const buffer = host.shared ? new SharedArrayBuffer(size) : new ArrayBuffer(size)
    const board = new JobBoard(boardShape, buffer)
    slotsUsed = () => board.counters[COUNTERS.indexOf('expertSlotsUsed')]
    const setup: Omit<ComputeSetup, 'index'> = {
      task: 'model',
      kernels,
      memories,
      board: buffer,
      boardShape,
      model,
      experts: files && readers && { streamer: streamerPlan(config, files, plan, options), ring: readers.ring },
      gate: internals.gate,
    }
    const setups = Array.from({ length: threads }, (_, index) => ({ ...setup, index }))
    const pool = host.shared
      ? await WorkerPool.start(setups, board, host)
      : await LocalCompute.start(setups[0], board, readers)
    return new WasmRuntime({
      ...{ model, plan, threads, processors: host.processors, simd: kernels.simd, isShared: host.shared },
      ...{ board, store, pool, banks, readers },
      ...{ plannedBytes: bytes, mostGuesses: opening.guesses, noDrafts: opening.noDrafts },
    })
  } catch (error) {
    await readers?.close()
    throw error
  }
}

/** Sequence state that grows is refused before the system would end the process for it. */
function whyNotGrow(memory: MemoryFacts, bytes: number): string | null {
  if (bytes + spareBytes(memory) <= memory.ceiling) return null
  return `memory is full under ${memoryLimitText(memory)}; less expertMemory or a shorter contextLength leaves more`
}

function streamerPlan(
  config: ModelConfig,
  files: ExpertFiles,
  plan: MemoryPlan,
  options: BackendOptions,
): StreamerPlan {
  return {
    layers: config.expertLayers.length,
    experts: config.numExperts,
    expertsPerToken: options.expertsPerToken,
    expertSize: files.layout.expertSize,
    slotBank: Int32Array.from(plan.slots, slot => slot.bank),
    slotOffset: Float64Array.from(plan.slots, slot => slot.address),
    policy: 'lrfu',
    prefetch: options.prefetch ?? true,
    fileNames: files.files.map(file => file.name),
    layerNumbers: config.expertLayers,
  }
}
