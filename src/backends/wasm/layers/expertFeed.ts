// The leader's side of the MoE block: turns a layer's routing into requests to the streamer and the streamer's ready
// slots into waves on the board. Layers are counted among those with experts. Runs in the leading worker alone; the others
// only see waves.
import { MoefluxError } from '../../../base/errors.js'
import type { WasmMemory } from '../../../base/wasmTypes.js'
import { ABORTED, type ExpertStreamer } from '../../../experts/expertStreamer.js'
import { PromptStalls } from '../../../experts/prefetch.js'
import type { PlacedModel } from '../memory/placedModel.js'
import { type JobBoard, WAVE } from '../workers/jobBoard.js'
import { COUNTERS } from '../workers/jobLayout.js'
import { EarlyRouter } from './earlyRouter.js'
import { HOME, type Lane } from './workerOps.js'

export class ExpertFeed {
  /** Why the last wave was an abandoned one; null for an abort. */
  failure: MoefluxError | null = null
  private readonly counts: Int32Array // [experts]: pairs of each in this layer
  private readonly starts: Int32Array // [experts]: first pair
  private readonly wanted: Int32Array // [experts]
  private readonly batch: Int32Array // [experts]
  private readonly indices: Uint32Array // [layers with experts, chunk * K], of the home bank
  private readonly pairRows: Uint32Array[] // per bank
  private readonly pairOuts: Uint32Array[] // per bank
  private startedAt = 0
  private reading = true // the last job read experts
  private readsSeen = 0
  private routerSeconds = 0
  private stallSeen = 0
  private left = 0 // experts of the layer that no wave had yet
  private readonly stalls = new PromptStalls()
  private helps = false // the present layer of a prompt reads ahead for the next

  private readonly model: PlacedModel
  private readonly board: JobBoard
  private readonly early: EarlyRouter

  constructor(
    private readonly lane: Lane,
    private readonly streamer: ExpertStreamer,
    memories: readonly WasmMemory[],
  ) {
    const { model } = lane
    this.model = model
    this.board = lane.board
    this.early = new EarlyRouter(lane, memories[HOME])
    this.stallSeen = streamer.stats.stallSeconds
    this.readsSeen = readsOf(streamer)
    const { numExperts } = model.config
    const pairs = model.chunkTokens * model.expertsPerToken
    this.counts = new Int32Array(numExperts)
    this.starts = new Int32Array(numExperts)
    this.wanted = new Int32Array(numExperts)
    this.batch = new Int32Array(numExperts)
    const words = (address: number, bank: number, count = pairs) =>
      new Uint32Array(memories[bank].buffer, address, count)
    const slotBanks = [...new Set(model.slots.map(slot => slot.bank))]
    this.indices = words(model.scratch.indices, HOME, model.config.expertLayers.length * pairs)
    this.pairRows = slotBanks.map(bank => words(model.scratch.pairRow, bank))
    this.pairOuts = slotBanks.map(bank => words(model.scratch.pairOut, bank))
  }

  beginJob(): void {
    this.failure = null
    this.startedAt = performance.now()
    if (this.board.forgetsExperts) this.streamer.forget()
    this.streamer.beginStep()
  }

  /** Leaves nothing pinned and tells the main thread what was counted. */
  endJob(finished: boolean): void {
    this.streamer.release()
    const isToken = this.lane.alone && this.isDecode && this.board.drafts !== 'guess'
    if (finished) this.streamer.endStep((performance.now() - this.startedAt) / 1000, isToken)
    const { stats } = this.streamer
    const reads = readsOf(this.streamer)
    this.reading = reads > this.readsSeen
    this.readsSeen = reads
    COUNTERS.forEach((name, i) => {
      this.board.counters[i] = stats[name]
    })
  }

  /** Sorts the (row, rank) pairs of a layer by expert and asks for the experts. */
  request(layer: number, rows: number): void {
    const { counts, starts, wanted } = this
    const k = this.model.expertsPerToken
    const indices = this.indices.subarray(layer * this.model.chunkTokens * k)
    const pairs = rows * k
    counts.fill(0)
    for (let i = 0; i < pairs; i++) counts[indices[i]]++
    let start = 0
    let distinct = 0
    for (let expert = 0; expert < counts.length; expert++) {
      starts[expert] = start
      start += counts[expert]
      if (counts[expert] > 0) wanted[distinct++] = expert
    }
    for (let i = 0; i < pairs; i++) {
      const at = starts[indices[i]]++
      const row = Math.floor(i / k)
      for (const list of this.pairRows) list[at] = row
      for (const list of this.pairOuts) list[at] = i
    }
    this.left = distinct
    this.helps = !this.isDecode && this.stalls.wantsHelp(layer, this.streamer.stats)
    this.streamer.request(layer, wanted.subarray(0, distinct))
    this.early.observe(layer, indices)
  }

  /** Reads ahead for the next layer while this one computes, where steps read at all and the streamer is for it. */
  prefetch(layer: number): void {
    if (!this.reading || layer >= this.model.config.moeLayers.length || this.board.probe) return
    if (this.helps) this.streamer.readNextLayer(layer, this.left, () => this.early.wanted(layer))
    else this.guess(layer)
  }

  /** The same for a token's first experts, while a layer before them computes that has none. */
  prefetchFirst(): void {
    if (this.reading && !this.board.probe) this.guess(0)
  }

  private guess(layer: number): void {
    const { streamer, early, lane } = this
    if (this.isDecode && lane.alone && streamer.wantsPrefetch) streamer.guess(layer, early.guesses(layer))
  }

  private get isDecode(): boolean {
    return this.board.rows === this.board.runs || this.board.run(0).guesses
  }

  /** Whether `nextWave` would return at once. */
  get isReady(): boolean {
    return this.streamer.poll()
  }

  /** Puts the next experts that are ready on the board, or that the layer is given up. */
  nextWave(): void {
    const { board, streamer, batch } = this
    const count = this.nextBatch()
    if (count <= 0) {
      streamer.giveUp()
      board.setWave(WAVE.abandon, 0)
      return
    }
    for (let i = 0; i < count; i++) {
      const { bank, address } = this.model.slots[batch[i]]
      const expert = streamer.expertOf(batch[i])
      const pairs = this.counts[expert]
      board.setEntry(i, { bank, address, pairStart: this.starts[expert] - pairs, pairs })
    }
    this.left -= count
    board.setWave(this.left === 0 ? WAVE.lastExperts : WAVE.experts, count)
  }

  private nextBatch(): number {
    if (this.board.aborted) return ABORTED
    try {
      return this.streamer.next(this.batch)
    } catch (error) {
      if (!(error instanceof MoefluxError)) throw error // the cache is not to be trusted any more
      this.failure = error
      return 0
    }
  }

  /** Seconds since the last call that were the router's work or waiting for reads. */
  takeAside(): { router: number; stall: number } {
    const stalled = this.streamer.stats.stallSeconds
    const aside = { router: this.routerSeconds, stall: stalled - this.stallSeen }
    this.routerSeconds = 0
    this.stallSeen = stalled
    return aside
  }

  /** Called when the block's router part is over. */
  routed(startedAt: number): void {
    this.routerSeconds += (performance.now() - startedAt) / 1000
  }

  /** After the last wave, or after giving up: nothing stays pinned. */
  release(): void {
    this.streamer.release()
  }
}

function readsOf({ stats }: ExpertStreamer): number {
  return stats.expertMisses + stats.prefetchReads
}
