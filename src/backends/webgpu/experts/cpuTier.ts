// The experts that a GPU has no room for: in memory, computed there by threads, read from disk when they are not there. Joins
// the decisions of ExpertTiers and of the streamer, the reader threads that fill slots, and the workers. One layer's experts
// at a time; where they are more than the slots, in turns.
import { ClosedError, type DeviceLostError } from '../../../base/errors.js'
import { copyShared } from '../../../base/sharedMemory.js'
import { AsyncStreamer } from '../../../experts/asyncStreamer.js'
import { MemoryClaims } from '../../../experts/claims.js'
import type { ExpertName } from '../../../experts/expertCache.js'
import type { ExpertTiers } from '../../../experts/expertTiers.js'
import type { GuessedSlots } from '../../../experts/prefetch.js'
import type { ReadTotals } from '../../../experts/readers/readCounters.js'
import type { ReadPriority } from '../../../experts/readers/readRing.js'
import { type ReadFault, readFault, StreamerCore, type StreamerStats } from '../../../experts/streamerCore.js'
import { PromptAhead } from '../../../experts/tieredPrefetch.js'
import { expertsToBring, type PromptRule } from '../../../experts/tierSpeed.js'
import type { HostEntry, HostWorkers } from '../../wasm/workers/expertWorkers.js'
import type { HostExperts, HostPair } from './cpuExperts.js'
import type { ExpertReader } from './expertReader.js'
import type { TierLink } from './residency.js'

const MOST_AHEAD = 16 // reads that nobody waits for, at once
const FILLING = 8 // of those, where memory is filled beside everything else

/** What the tier needs of reader threads. */
export interface SlotReader {
  read(file: number, offset: number, size: number, bank: number, target: number, priority: ReadPriority): Promise<void>
  promote(file: number, offset: number): void
  /** Takes back a read that has not begun, which then never settles. False: it will end. */
  callOff(file: number, offset: number): boolean
  readonly totals: ReadTotals
  close(): Promise<void>
}

/** The slots above these, whose uploads hold experts in memory for a while. */
export interface SlotsAbove {
  callOffMoves(): boolean
  readonly holdsMemory: boolean
  readonly isServed: boolean // what the present layer wants there has slots
  readonly stats: StreamerStats
}

export class HostTier implements HostExperts, GuessedSlots, TierLink {
  onRead: (() => void) | null = null // an expert has arrived, or failed to
  above: SlotsAbove | null = null
  private isFilling = false
  private isMakingRoom = false
  private passing = 0 // reads past memory that somebody waits for
  private filled = 0 // experts that were looked at, in the order of `fillNext`
  private readonly core: StreamerCore
  private readonly streamer: AsyncStreamer
  private readonly ahead: PromptAhead

  constructor(
    readonly tiers: ExpertTiers,
    private readonly expertSize: number,
    files: { readonly fileNames: readonly string[]; readonly layerNumbers: readonly number[] }, // for errors, as StreamerCore's
    private readonly workers: HostWorkers,
    private readonly reader: SlotReader,
    private readonly prompts: PromptRule,
  ) {
    const orders = {
      ask: (slot: number, ahead: boolean) => this.load(slot, ahead ? 'prefetch' : 'demand'),
      promote: (slot: number) => {
        const { layer, expert } = this.nameOf(slot)
        reader.promote(layer, expert * expertSize)
      },
      // Who goes up from there waits for it. Others would not be read again.
      callOff: (slot: number) => {
        const { layer, expert } = this.nameOf(slot)
        const mayGo = this.ahead.isOwn(slot) && !tiers.memory.isPinned(slot)
        return mayGo && reader.callOff(layer, expert * expertSize)
      },
    }
    this.core = new StreamerCore(tiers.memory, orders, {
      claims: new MemoryClaims(tiers, () => this.makeRoom()),
      othersHold: () => this.above?.holdsMemory === true,
      onOver: (slot: number) => {
        this.ahead.ended(slot)
        this.streamer.changed()
      },
      aheadLimit: MOST_AHEAD,
      expertSize,
      ...files,
    })
    this.streamer = new AsyncStreamer(this.core)
    const most = Math.min(MOST_AHEAD, Math.max(1, tiers.memory.slots >> 1))
    const gpu = {
      isServed: () => this.above?.isServed !== false,
      isReading: () => this.passing > 0,
      stallSeconds: () => this.above?.stats.stallSeconds ?? 0,
    }
    this.ahead = new PromptAhead(tiers, this.core, gpu, most)
  }

  get failure(): DeviceLostError | null {
    return this.workers.failure
  }

  get stats(): StreamerStats {
    return this.core.stats
  }

  get readsAsked(): number {
    return this.core.readsAsked
  }

  /** Whether there is a slot for every expert that the GPU has none for. */
  get holdsRest(): boolean {
    const { layers, experts } = this.tiers.shape
    return this.tiers.gpu.slots + this.tiers.memory.slots >= layers * experts
  }

  get bytes(): number {
    return this.tiers.memory.slots * this.workers.slotBytes
  }

  compute(
    layer: number,
    hidden: Float32Array,
    pairs: readonly HostPair[],
    signal?: AbortSignal,
  ): Promise<Float32Array> {
    if (this.streamer.isOver) return Promise.reject(new ClosedError('model'))
    const entries = groupPairs(pairs)
    this.core.request(layer, [...entries.keys()])
    return this.core.isComplete
      ? this.computeNow(layer, hidden, entries)
      : this.computeAsTheyCome(layer, hidden, entries, signal)
  }

  toBring(tokensOf: ReadonlyMap<number, number>): ReadonlySet<number> {
    return expertsToBring(tokensOf, this.prompts)
  }

  spin(): void {
    this.workers.spin()
  }

  // --- memory ------------------------------------------------------------------------------------------------------

  /** The bytes of an expert that is in memory; valid until the next turn of the event loop. */
  bytesOf(layer: number, expert: number): Uint8Array | null {
    const slot = this.tiers.memory.slotOf(layer, expert)
    if (slot < 0 || !this.tiers.memory.isReady(slot)) return null
    const { bank, address } = this.workers.slots[slot]
    return new Uint8Array(this.workers.memories[bank].buffer, address, this.expertSize)
  }

  /** Reads experts into mapped memory: from memory where they are there or on their way, else as `other` does. */
  readerBefore(other: ExpertReader): ExpertReader {
    return {
      read: async (layer, expert, target, priority) => {
        const { memory } = this.tiers
        const slot = memory.slotOf(layer, expert)
        if (slot >= 0 && !memory.isReady(slot)) {
          const isComing = () => memory.slotOf(layer, expert) === slot && !memory.isReady(slot)
          if (priority === 'demand') this.reader.promote(layer, expert * this.expertSize)
          await this.streamer.settled(() => !isComing() || this.streamer.isOver)
        }
        const bytes = this.bytesOf(layer, expert)
        if (bytes !== null) return copyShared(bytes, target)
        const isWaited = priority === 'demand' ? 1 : 0
        this.passing += isWaited
        try {
          await other.read(layer, expert, target, priority)
        } finally {
          this.passing -= isWaited
        }
      },
      promote: (layer, expert) => other.promote(layer, expert),
      isLocal: other.isLocal,
      get totals() {
        return other.totals
      },
      close: async () => {
        await other.close()
        await this.close()
      },
    }
  }

  get reads(): ReadTotals {
    return this.reader.totals
  }

  onFreed(): void {
    if (!this.isMakingRoom) this.goOn()
    this.streamer.changed()
  }

  onMoved(left: ExpertName | null): void {
    if (this.streamer.isOver) return
    const nowhere = left ?? this.tiers.displaced.pop() ?? null
    if (nowhere !== null) this.readInto(this.tiers.refill(nowhere))
    else if (this.isFilling) this.fillNext()
  }

  /**
   * Reads experts into empty slots, behind everything else, until there are none. More come when experts go up into empty
   * slots of the GPU and leave copies here.
   */
  async fill(): Promise<void> {
    this.isFilling = true
    while (!this.streamer.isOver && this.fillNext()) {
      await this.streamer.settled(() => this.core.reading < FILLING || this.streamer.isOver)
    }
  }

  /** Ends when nothing is being read. */
  async settled(): Promise<void> {
    await this.streamer.settled(() => this.core.reading === 0 || this.streamer.isOver)
  }

  /** Begins to read one expert that is nowhere so far. False: there is none, or no room for it. */
  private fillNext(): boolean {
    const { layers, experts } = this.tiers.shape
    for (; this.filled < layers * experts; this.filled++) {
      // Layer by layer: what there is no room for yet is spread over all of them.
      const name = { layer: this.filled % layers, expert: Math.floor(this.filled / layers) }
      if (this.tiers.isHeld(name.layer, name.expert)) continue
      return this.readInto(this.tiers.fillMemory(name))
    }
    return false
  }

  /** While the core looks for slots: what comes free by this it takes itself. */
  private makeRoom(): boolean {
    this.isMakingRoom = true
    const isDone = this.above?.callOffMoves() === true
    this.isMakingRoom = false
    return isDone
  }

  private readInto(slot: number): boolean {
    if (slot >= 0) this.core.move(slot)
    return slot >= 0
  }

  // --- guesses -----------------------------------------------------------------------------------------------------

  has(layer: number, expert: number): boolean {
    return this.tiers.isHeld(layer, expert)
  }

  prefetch(layer: number, expert: number): void {
    if (this.streamer.isOver || !this.core.mayReadAhead) return
    this.readInto(this.tiers.readAhead(layer, expert))
  }

  get reading(): number {
    return this.core.reading
  }

  helpsNext(layer: number): boolean {
    return !this.holdsRest && this.ahead.wantsHelp(layer)
  }

  readNextLayer(layer: number, wanted: number, guess: readonly number[]): void {
    if (!this.streamer.isOver) this.ahead.begin(layer, wanted, guess)
  }

  endAhead(): void {
    this.ahead.end()
  }

  async close(): Promise<void> {
    this.ahead.end()
    this.streamer.end(new ClosedError('model'))
    await this.reader.close()
    await this.streamer.settled(() => this.core.reading === 0)
    await this.workers.close()
  }

  // -----------------------------------------------------------------------------------------------------------------

  /** All experts are there: the workers begin before this returns. */
  private async computeNow(layer: number, hidden: Float32Array, entries: Entries): Promise<Float32Array> {
    try {
      return await this.workers.compute(layer, hidden, this.entriesOf(this.core.take(entries.size), entries))
    } finally {
      this.core.release()
      this.ahead.goOn()
    }
  }

  /** What is there is computed while the others are read. */
  private async computeAsTheyCome(
    layer: number,
    hidden: Float32Array,
    entries: Entries,
    signal: AbortSignal | undefined,
  ): Promise<Float32Array> {
    let sum: Float32Array | null = null
    for await (const slots of this.streamer.handOut({ signal })) {
      const rows = await this.workers.compute(layer, hidden, this.entriesOf(slots, entries))
      sum = sum === null ? rows : add(sum, rows)
    }
    this.ahead.goOn()
    return sum as Float32Array
  }

  private entriesOf(slots: readonly number[], entries: Entries): HostEntry[] {
    return slots.map(slot => ({ slot, ...(entries.get(this.tiers.memory.expertOf(slot)) as Rows) }))
  }

  private load(slot: number, priority: ReadPriority): void {
    const { bank, address } = this.workers.slots[slot]
    const { layer, expert } = this.nameOf(slot)
    const { expertSize } = this
    this.reader.read(layer, expert * expertSize, expertSize, bank, address, priority).then(
      () => this.ended(slot, null),
      error => this.ended(slot, readFault(error)),
    )
  }

  private ended(slot: number, fault: ReadFault | null): void {
    this.core.ended(slot, fault)
    this.goOn()
    this.streamer.changed()
    this.onRead?.()
  }

  /** Slots may have become free: first for those who wait. */
  private goOn(): void {
    this.core.goOn()
    this.ahead.goOn()
  }

  private nameOf(slot: number): ExpertName {
    return this.tiers.memory.nameOf(slot) as ExpertName
  }
}

/** The rows that go through an expert, and by what weights. */
interface Rows {
  readonly rows: number[]
  readonly weights: number[]
}
type Entries = ReadonlyMap<number, Rows>

/** By expert, ascending: the order in which they are summed. */
function groupPairs(pairs: readonly HostPair[]): Entries {
  const byExpert = new Map<number, Rows>()
  for (const { token, expert, weight } of [...pairs].sort((a, b) => a.expert - b.expert)) {
    const entry = byExpert.get(expert)
    if (entry === undefined) byExpert.set(expert, { rows: [token], weights: [weight] })
    else {
      entry.rows.push(token)
      entry.weights.push(weight)
    }
  }
  return byExpert
}

function add(sum: Float32Array, rows: Float32Array): Float32Array {
  for (let i = 0; i < rows.length; i++) sum[i] += rows[i]
  return sum
}
