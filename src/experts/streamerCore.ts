// What a streamer decides, on every backend: which reads to ask for, which of a layer's experts may be computed now, when a
// layer has failed, what is read ahead and what is called off. Pure: it waits for nothing and moves no bytes. A driver
// carries out what it orders, tells it which reads have ended, and waits in its own way: by blocking in shared memory
// (expertStreamer.ts) or by promises (asyncStreamer.ts).
//
// One request at a time: the experts that a layer was routed to. Each of them is taken exactly once, or the request has
// failed with ExpertReadError. Until it is let go it holds a pin on every slot it has, also on one whose read has failed:
// no other expert comes into that slot while somebody may still take it for his own.
import { ExpertReadError, messageOf, ReadError } from '../base/errors.js'
import type { ExpertCache } from './expertCache.js'
import type { GuessedSlots, LayerSlots } from './prefetch.js'

/** Why a read brought nothing. */
export interface ReadFault {
  readonly detail: string
  readonly cause?: unknown
}

/** What an error of a reader says. */
export function readFault(cause: unknown): ReadFault {
  if (cause instanceof ReadError) return { detail: cause.detail, cause }
  return { detail: messageOf(cause), cause }
}

/** What the driver does for the core. */
export interface ReadOrders {
  /** Read the cache's expert of this slot into it. What was in the slot is over. */
  ask(slot: number, ahead: boolean): void
  /** A read that was asked for ahead is wanted now. */
  promote(slot: number): void
  /** Take back a read that has not begun. False: it has, and will end. */
  callOff(slot: number): boolean
}

/** Who finds slots for a request; the cache itself, unless somebody above it decides. */
export interface SlotClaims {
  /** The slot of an expert that is there or on its way, pinned; -1 where it is not. */
  want(layer: number, expert: number): number
  /** A pinned slot for one that is not; -1 where no slot may be emptied now. */
  claim(layer: number, expert: number): number
  /** The request is over. */
  release?(): void
}

export interface StreamerCoreOptions {
  readonly claims?: SlotClaims
  /** The read into a slot is over: ended, failed or called off. Before the slot is given away. */
  readonly onOver?: (slot: number, isThere: boolean) => void
  /** Whether others hold slots that will come free; `goOn` comes then. */
  readonly othersHold?: () => boolean
  readonly aheadLimit: number // prefetches under way at once
  readonly expertSize: number // bytes
  readonly fileNames: readonly string[] // [layers], for errors
  readonly layerNumbers?: readonly number[] // [layers], for errors: the model's own; absent: 0, 1, 2, …
}

export interface StreamerStats {
  readonly expertHits: number
  readonly expertMisses: number
  readonly prefetchHits: number
  readonly prefetchReads: number
  readonly prefetchWastedBytes: number
  readonly stallSeconds: number
  readonly expertSlots: number
  readonly expertSlotsUsed: number
}

export class StreamerCore implements GuessedSlots, LayerSlots {
  /** Counts requests: whoever waited for one finds that it is over. */
  turn = 0
  /** Why the present request has failed. */
  failure: ExpertReadError | null = null
  /** The last read ahead that has failed, for those who read for its own sake. */
  aheadFailure: ExpertReadError | null = null
  stallSeconds = 0
  private layer = -1 // of the present request
  private readonly taken: number[] = [] // slots that were handed out and are in use
  private readonly ready: number[] = [] // slots that were not handed out yet
  private readonly waiting = new Set<number>() // slots that are read for the request
  private readonly isOwn: Uint8Array // [slots], 1: the request itself has asked for that read
  private readonly pending: number[] = [] // experts without a slot so far
  private readonly broken: number[] = [] // slots whose read has failed
  private readonly ahead = new Set<number>() // slots that are read and no request waits for
  private readonly claims: SlotClaims

  constructor(
    readonly cache: ExpertCache,
    private readonly orders: ReadOrders,
    private readonly options: StreamerCoreOptions,
  ) {
    this.isOwn = new Uint8Array(cache.slots)
    this.claims = options.claims ?? cache
  }

  get stats(): StreamerStats {
    const { hits, misses, prefetchHits, prefetchReads, prefetchWastedBytes } = this.cache.counters
    return {
      expertHits: hits,
      expertMisses: misses,
      prefetchHits,
      prefetchReads,
      prefetchWastedBytes,
      stallSeconds: this.stallSeconds,
      expertSlots: this.cache.slotsLeft,
      expertSlotsUsed: this.cache.slotsUsed,
    }
  }

  /** Experts that were to be read, wanted or ahead. */
  get readsAsked(): number {
    const { misses, prefetchReads } = this.cache.counters
    return misses + prefetchReads
  }

  // --- a layer's experts -------------------------------------------------------------------------------------------

  /** Asks for a layer's experts, each once: pins those that are there and has the others read, in this order. */
  request(layer: number, experts: ArrayLike<number>): void {
    this.release()
    this.turn++
    this.layer = layer
    for (let i = 0; i < experts.length; i++) {
      const slot = this.claims.want(layer, experts[i])
      if (slot < 0) this.pending.push(experts[i])
      else this.join(slot)
    }
    this.callOffLayer(layer)
    this.goOn()
  }

  get hasReady(): boolean {
    return this.ready.length > 0
  }

  /** Experts of the request are on their way into slots. */
  get isWaiting(): boolean {
    return this.waiting.size > 0
  }

  /** Every expert of the request is in a slot, or was. */
  get isComplete(): boolean {
    return this.waiting.size === 0 && this.pending.length === 0 && this.failure === null
  }

  /** Every expert of the request has a slot, or had one. */
  get isServed(): boolean {
    return this.pending.length === 0 && this.failure === null
  }

  /** Hands out slots that are ready. They stay as they are until `giveBack` or `release`. */
  take(most: number): readonly number[] {
    const slots = this.ready.splice(0, most)
    for (const slot of slots) this.taken.push(slot)
    return slots
  }

  /** What was handed out has been used. */
  giveBack(): void {
    this.unpinAll(this.taken)
  }

  /** Has experts read that had no slot so far. Whether something changes that, where none could be had, is `isStuck`. */
  goOn(): void {
    let asked = 0
    for (const expert of this.pending) {
      // A read ahead may have brought it meanwhile, or be about to.
      const cached = this.claims.want(this.layer, expert)
      if (cached >= 0) this.join(cached)
      else {
        let slot = this.claims.claim(this.layer, expert)
        if (slot < 0 && this.callOffAhead(() => true) > 0) slot = this.claims.claim(this.layer, expert)
        if (slot < 0) break
        this.waitFor(slot, true)
        this.orders.ask(slot, false)
      }
      asked++
    }
    if (asked > 0) this.pending.splice(0, asked)
  }

  /** Experts lack and nothing is under way that could free a slot: the request holds them all, which it never should. */
  get isStuck(): boolean {
    if (this.pending.length === 0 || this.ready.length > 0 || this.waiting.size > 0 || this.ahead.size > 0) return false
    return this.options.othersHold?.() !== true
  }

  /** Ends the present request, finished or not: nothing stays pinned. Reads that have begun end on their own. */
  release(): void {
    this.giveBack()
    this.unpinAll(this.ready)
    this.unpinAll(this.broken)
    for (const slot of this.waiting) {
      this.cache.unpin(slot)
      if (this.orders.callOff(slot)) this.calledOff(slot)
      else this.ahead.add(slot)
    }
    this.waiting.clear()
    this.pending.length = 0
    this.claims.release?.()
    this.failure = null
    this.layer = -1
    this.turn++
  }

  // --- reads -------------------------------------------------------------------------------------------------------

  /** Calls with each slot whose read has not ended; what is called may tell of its end. */
  forEachInFlight(look: (slot: number) => void): void {
    for (const slot of this.waiting) look(slot)
    for (const slot of this.ahead) look(slot)
  }

  /** A read has ended, with its bytes in place or a fault. `goOn` comes after. */
  ended(slot: number, fault: ReadFault | null): void {
    const isWanted = this.waiting.delete(slot)
    this.ahead.delete(slot)
    if (fault === null) {
      this.cache.filled(slot)
      this.options.onOver?.(slot, true)
      if (isWanted) this.ready.push(slot)
      return
    }
    const layer = this.cache.layerOf(slot)
    const expert = this.cache.expertOf(slot)
    this.options.onOver?.(slot, false)
    this.cache.failed(slot)
    if (!isWanted) {
      this.aheadFailure = this.error(layer, expert, fault)
    } else if (this.isOwn[slot]) {
      this.failure ??= this.error(layer, expert, fault)
      this.broken.push(slot)
    } else {
      // It began before anybody wanted it, and may have failed before the disk was well: read once more, on our own account.
      this.cache.unpin(slot)
      this.pending.unshift(expert)
    }
  }

  /** Readers are gone, so that nothing will end. */
  lost(detail: string): void {
    const [slot] = this.waiting
    const expert = slot === undefined ? this.pending[0] : this.cache.expertOf(slot)
    if (this.layer >= 0 && expert !== undefined) this.failure ??= this.error(this.layer, expert, { detail })
  }

  /** All experts are read again when they are wanted, but for those on their way or in use. `onForget`: before a slot is. */
  forget(onForget?: (slot: number) => void): void {
    for (let slot = 0; slot < this.cache.slots; slot++) {
      if (!this.cache.life.mayEvict(slot)) continue
      onForget?.(slot)
      this.cache.forget(slot)
    }
  }

  // --- ahead -------------------------------------------------------------------------------------------------------

  /** Whether the expert is in a slot, or on its way into one. */
  has(layer: number, expert: number): boolean {
    return this.cache.slotOf(layer, expert) >= 0
  }

  get reading(): number {
    return this.ahead.size + this.waiting.size
  }

  get mayReadAhead(): boolean {
    return this.ahead.size < this.options.aheadLimit
  }

  /** Has an expert read that may be wanted soon, unless it is there or much is read ahead already. */
  prefetch(layer: number, expert: number): void {
    if (!this.mayReadAhead || this.has(layer, expert)) return
    const slot = this.cache.claimAhead(layer, expert)
    if (slot >= 0) this.move(slot)
  }

  get readingAhead(): number {
    return this.ahead.size
  }

  /** Has an expert of the next layer read, if the slot that it would get in its turn is free already. */
  readNext(layer: number, expert: number): boolean {
    const slot = this.cache.claimNext(layer, expert)
    if (slot >= 0) this.move(slot)
    return slot >= 0
  }

  /** Calls off reads that nobody waits for and that have not begun. */
  callOffAhead(which: (slot: number) => boolean): number {
    const before = this.ahead.size
    for (const slot of this.ahead) {
      if (!which(slot) || !this.orders.callOff(slot)) continue
      this.ahead.delete(slot)
      this.calledOff(slot)
    }
    return before - this.ahead.size
  }

  callOffLayer(layer: number): void {
    this.callOffAhead(slot => this.cache.layerOf(slot) === layer)
  }

  /** Has an expert read that nobody waits for, into a slot that was claimed for it. */
  move(slot: number): void {
    this.ahead.add(slot)
    this.orders.ask(slot, true)
  }

  private calledOff(slot: number): void {
    this.options.onOver?.(slot, false)
    this.cache.calledOff(slot)
  }

  private unpinAll(slots: number[]): void {
    for (const slot of slots) this.cache.unpin(slot)
    slots.length = 0
  }

  private waitFor(slot: number, isOwn: boolean): void {
    this.waiting.add(slot)
    this.isOwn[slot] = isOwn ? 1 : 0
  }

  private join(slot: number): void {
    if (this.cache.isReady(slot)) {
      this.ready.push(slot)
      return
    }
    this.ahead.delete(slot)
    this.waitFor(slot, false)
    this.orders.promote(slot)
  }

  private error(layer: number, expert: number, { detail, cause }: ReadFault): ExpertReadError {
    const { expertSize, fileNames, layerNumbers } = this.options
    const number = layerNumbers?.[layer] ?? layer
    return new ExpertReadError(number, expert, fileNames[layer], expert * expertSize, detail, { cause })
  }
}
