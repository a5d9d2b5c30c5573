// Threads that compute routed experts where their bytes are, for a backend whose other math runs elsewhere: memories with
// slots for experts, and workers that are awake while tokens are made. Which expert lies in which slot is the caller's
// business; it says so with every job.
import type { DeviceLostError } from '../../../base/errors.js'
import type { WasmMemory } from '../../../base/wasmTypes.js'
import type { PackedModel } from '../../../files/packed/packedModel.js'
import type { Precision } from '../../backend.js'
import { hostScratch } from '../cpuTierPlan.js'
import { HOME } from '../layers/workerOps.js'
import { alignUp, Bank, MAX_BANK_BYTES } from '../memory/bank.js'
import { SLOT_ALIGN, type Slot } from '../memory/bankLayout.js'
import { expertActivation, expertForms, placeExpert } from '../memory/placedModel.js'
import type { WasmHost } from '../platform.js'
import type { ExpertModel, ExpertSetup } from './expertLoop.js'
import { JobBoard, type WaveEntry } from './jobBoard.js'
import type { BoardShape } from './jobLayout.js'
import { defaultLimits } from './team.js'
import { WorkerPool } from './workerPool.js'

/** About five milliseconds: the next layer's job comes before that, the next token's too. */
const JOB_SPINS = 1_000_000

/** About 150 µs. A worker that sleeps at a barrier comes later than the others need for all the rest of a layer. */
const BARRIER_SPINS = 20_000

/** Longer than a layer's missing experts take; what takes longer is heard of in a turn of the event loop. */
const SPIN_MS = 0.5

/** Whether a turn of the event loop is soon enough to look for a job's end: a tab has no such turns. */
const watches = typeof setImmediate === 'function'

export interface HostWorkersOptions {
  readonly precision: Precision
  readonly expertsPerToken: number
  readonly threads: number
  readonly slots: number
  readonly maxRows: number // of a job
  readonly norms: readonly Float32Array[] // [layers][hidden]: weights of the norm before the experts
  readonly bankLimit?: number
  /** The GPU computes on the same processors: nobody may keep one while waiting. */
  readonly sharesProcessors?: boolean
}

/** An expert in a slot, and the rows that go through it. */
export interface HostEntry {
  readonly slot: number
  readonly rows: readonly number[]
  readonly weights: readonly number[]
}

export class HostWorkers {
  /** The memories that slots lie in. They do not grow. */
  readonly memories: readonly WasmMemory[]
  private readonly home: Float32Array // all of the home bank
  private used: number // threads

  private constructor(
    readonly slots: readonly Slot[],
    readonly slotBytes: number,
    readonly threads: number,
    private readonly hiddenSize: number,
    private readonly model: ExpertModel,
    private readonly banks: readonly Bank[],
    private readonly board: JobBoard,
    private readonly pool: WorkerPool,
    private readonly cores: number,
  ) {
    this.home = new Float32Array(banks[HOME].memory.buffer)
    this.memories = banks.map(({ memory }) => memory)
    this.used = threads
  }

  static async open(packed: PackedModel, options: HostWorkersOptions, host: WasmHost): Promise<HostWorkers> {
    const { config } = packed
    const { layout, layouts } = packed.experts
    const { precision, expertsPerToken, threads, maxRows: chunkTokens, sharesProcessors = false } = options
    const kernels = await host.loadKernels()
    const forms = expertForms(layouts, precision)
    const laid = hostScratch({ ...options, config, forms, expertSize: layout.expertSize })
    const { config: small, scratch, slotBytes } = laid
    const norms = options.norms.map((_, layer) => scratch.bytes + layer * laid.normBytes)
    const limit = options.bankLimit ?? MAX_BANK_BYTES
    const { slots, floors } = placeSlots(options.slots, slotBytes, laid.homeBytes, scratch.bytes, limit)
    const banks = floors.map((floor, index) => new Bank(index, floor, floor, host.shared))
    for (const [layer, norm] of options.norms.entries()) banks[HOME].floats(norms[layer], norm.length).set(norm)

    const activation = expertActivation(config)
    const experts = layouts.map(layout => placeExpert(layout, forms, precision, activation))
    const model: ExpertModel = { config: small, expertsPerToken, chunkTokens, scratch, experts, norms }
    const boardShape: BoardShape = {
      threads,
      chunkTokens: 1,
      layers: 1,
      fullLayers: 0,
      moeLayers: 1,
      experts: config.numExperts,
      headRows: 0,
    }
    const { size } = new JobBoard(boardShape)
    const buffer = new SharedArrayBuffer(size)
    const board = new JobBoard(boardShape, buffer)
    const cores = sharesProcessors ? 1 : host.threads
    const hasOwnCores = threads < cores // one for who waits for them
    const setup: Omit<ExpertSetup, 'index'> = {
      task: 'experts',
      kernels,
      memories: banks.map(bank => bank.memory),
      board: buffer,
      boardShape,
      model,
      jobSpins: sharesProcessors ? BARRIER_SPINS : JOB_SPINS,
      barrierSpins: hasOwnCores ? BARRIER_SPINS : defaultLimits.spins,
      tells: !watches,
    }
    const setups = Array.from({ length: threads }, (_, index) => ({ ...setup, index }))
    const pool = await WorkerPool.start(setups, board, host)
    return new HostWorkers(slots, slotBytes, threads, config.hiddenSize, model, banks, board, pool, cores)
  }

  get failure(): DeviceLostError | null {
    return this.pool.failure
  }

  /**
   * Per row of `hidden` [rows, hidden] the weighted sum of its experts over its norm. Begins before it returns; one job at
   * a time.
   */
  async compute(layer: number, hidden: Float32Array, entries: readonly HostEntry[]): Promise<Float32Array> {
    const { hiddenSize, model, board, home } = this
    const rows = hidden.length / hiddenSize
    const { hidden: input, mlpOut: output } = model.scratch
    for (let row = 0; row < rows; row++) {
      const from = rows === 1 ? hidden : hidden.subarray(row * hiddenSize, (row + 1) * hiddenSize)
      home.set(from, (input.address + row * input.stride) / 4)
    }
    board.writeExperts(layer, rows, ...this.writePairs(rows, entries))
    await (watches ? this.pool.runWatched(this.used) : this.pool.run(this.used))
    const out = new Float32Array(hidden.length)
    for (let row = 0; row < rows; row++) {
      const at = (output.address + row * output.stride) / 4
      out.set(home.subarray(at, at + hiddenSize), row * hiddenSize)
    }
    return out
  }

  /** From the next job on, as many of the threads compute. The others sleep. */
  use(threads: number): void {
    this.used = threads
  }

  /** Waits for the present job and nothing else, where it may end soon and no thread lacks the processor for that. */
  spin(): void {
    if (this.used < this.cores && watches) this.pool.spin(SPIN_MS)
  }

  close(): Promise<void> {
    return this.pool.close()
  }

  /** Which row and rank each pair is, by expert, where the kernels look. */
  private writePairs(rows: number, entries: readonly HostEntry[]): [number, WaveEntry[]] {
    const used = new Int32Array(rows)
    for (const entry of entries) for (const row of entry.rows) used[row]++
    const ranks = Math.max(1, ...used)
    const pairs = entries.reduce((sum, entry) => sum + entry.rows.length, 0)
    const pairRow = new Uint32Array(pairs)
    const pairOut = new Uint32Array(pairs)
    const { scratch } = this.model
    const weights = this.home.subarray(scratch.weights / 4, scratch.weights / 4 + rows * ranks).fill(0)
    used.fill(0)
    let at = 0
    const waves = entries.map(({ slot, rows: own, weights: by }): WaveEntry => {
      const pairStart = at
      for (const [i, row] of own.entries()) {
        const rank = used[row]++
        pairRow[at] = row
        pairOut[at++] = row * ranks + rank
        weights[row * ranks + rank] = by[i]
      }
      return { ...this.slots[slot], pairStart, pairs: own.length }
    })
    for (const bank of new Set(waves.map(({ bank }) => bank))) {
      this.banks[bank].words(scratch.pairRow, pairs).set(pairRow)
      this.banks[bank].words(scratch.pairOut, pairs).set(pairOut)
    }
    return [ranks, waves]
  }
}

/** Slots from the home bank on, bank after bank; each begins with the scratch that kernels there use. */
function placeSlots(count: number, slotBytes: number, homeFloor: number, scratchBytes: number, limit: number) {
  const slots: Slot[] = []
  const floors = [alignUp(homeFloor, SLOT_ALIGN)]
  while (slots.length < count) {
    let bank = floors.length - 1
    if (floors[bank] + slotBytes > limit) bank = floors.push(alignUp(scratchBytes, SLOT_ALIGN)) - 1
    slots.push({ bank, address: floors[bank] })
    floors[bank] += slotBytes
  }
  return { slots, floors }
}
