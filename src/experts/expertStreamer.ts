// Brings experts into memory while a backend computes with those that are there. Synchronous: it runs in the thread that
// leads the computation and blocks in shared memory when nothing is ready. Which slot an expert gets is the cache's
// decision, reading is the readers'; this joins the two. It keeps the disk busy (all misses of a layer are asked for at once),
// hands out hits first, lets demands overtake prefetches, and works with any number of slots: a layer that wants more
// experts than fit is served in turns, each expert read at most once.
//
//   streamer.beginStep()
//   for each layer:
//     streamer.request(layer, experts)              // ascending; reads begin now
//     … shared expert …
//     while ((n = streamer.next(batch)) > 0)        // blocks only when none is ready
//       … compute the experts in slots batch[0..n) …
//     streamer.release()                            // always, also after an error or an abort
//   streamer.endStep(seconds)
import { ExpertReadError } from '../errors.js'
import type { PolicyName } from './evictionPolicy.js'
import { ExpertCache } from './expertCache.js'
import { PrefetchGovernor } from './prefetchGovernor.js'
import { type GuessedSlots, ReadAhead } from './readAhead.js'
import { failureText, type ReadFailure, type ReadRequest, readState } from './readRing.js'

/** What the streamer needs of the ring: tests answer reads without threads. */
export interface ReadQueue {
  submit(entry: number, request: ReadRequest, ahead: boolean): void
  promote(entry: number): void
  cancel(entry: number): boolean
  state(entry: number): number
  settle(entry: number): void
  failure(entry: number): ReadFailure
  readonly answers: number
  readonly lostReaders: number
  waitForAnswer(seen: number, timeoutMs: number): void
}

/** Can be posted to another thread. */
export interface StreamerPlan {
  readonly layers: number
  readonly experts: number // per layer
  readonly expertsPerToken: number
  readonly expertSize: number // bytes
  readonly slotBank: Int32Array // [slots], which shared memory
  readonly slotOffset: Float64Array // [slots], bytes in it
  readonly policy: PolicyName
  readonly prefetch: boolean
  readonly fileNames: readonly string[] // [layers], for errors
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

/** Returned by `next` when the abort word was set while it waited. */
export const aborted = -1

const abortCheckMs = 10
const sources = 2 // of guesses: the next layer's router, the token before
const leastTrue = 0.6 // share of a kind of guess that must come true for it to be read
const mostAhead = 64 // experts

export class ExpertStreamer implements GuessedSlots {
  private readonly cache: ExpertCache
  private readonly governor: PrefetchGovernor
  private readonly readAhead: ReadAhead
  private readonly aheadLimit: number // prefetches under way at once
  private layer = -1 // of the present request
  private handedOut: number[] = [] // slots of the last batch: pinned until the next call
  private ready: number[] = [] // pinned slots, not handed out yet
  private waiting: number[] = [] // pinned slots in flight
  private pending: number[] = [] // experts without a slot so far
  private ahead: number[] = [] // slots in flight that no request waits for
  private stallSeconds = 0
  private readsAtStep = 0

  constructor(
    private readonly plan: StreamerPlan,
    private readonly queue: ReadQueue,
    private readonly abort: Int32Array, // [1], not 0: stop waiting
    resident?: Uint8Array, // [layers, experts], shows which experts are in memory
  ) {
    const { layers, experts, expertSize, policy } = plan
    const shape = { layers, experts, slots: plan.slotBank.length, expertBytes: expertSize, policy }
    this.cache = new ExpertCache(shape, resident)
    this.governor = new PrefetchGovernor(plan.prefetch)
    this.aheadLimit = Math.min(mostAhead, this.cache.slots >> 2)
    // A read costs the processor time that computing needs, so an idle disk is no reason for one.
    const guesses = { k: plan.expertsPerToken, sources, least: leastTrue, leastSpare: leastTrue }
    this.readAhead = new ReadAhead(this, { layers, experts, ...guesses })
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
      expertSlots: this.cache.slots,
      expertSlotsUsed: this.cache.slotsUsed,
    }
  }

  /** Whether a prefetch would be acted on now; spares the caller the work of predicting. */
  get wantsPrefetch(): boolean {
    return this.governor.on && this.ahead.length < this.aheadLimit
  }

  beginStep(): void {
    this.cache.tick()
    this.readsAtStep = this.readsSoFar()
    this.readAhead.forget()
  }

  /** After a step that was neither aborted nor failed. `mayGuess`: it was of a kind for which guesses are made. */
  endStep(seconds: number, mayGuess: boolean): void {
    if (mayGuess) this.governor.stepDone(seconds, this.readsSoFar() - this.readsAtStep)
  }

  /** Asks for a layer's experts, each once: pins those that are there and begins to read the others in this order. */
  request(layer: number, experts: ArrayLike<number>): void {
    this.release()
    this.layer = layer
    this.collectAhead()
    for (let i = 0; i < experts.length; i++) {
      const slot = this.cache.want(layer, experts[i])
      if (slot < 0) {
        this.pending.push(experts[i])
      } else if (this.cache.isReady(slot)) {
        this.ready.push(slot)
      } else {
        this.ahead.splice(this.ahead.indexOf(slot), 1)
        this.queue.promote(slot)
        this.waiting.push(slot)
      }
    }
    this.callOffAhead(slot => this.cache.layerOf(slot) === layer)
    if (this.readAhead.isOpen(layer)) this.readAhead.judge(layer, new Set(Array.from(experts)))
    this.readPending()
  }

  /**
   * Puts slots with experts that are ready into `batch` and returns how many; waits for one where none is. They stay
   * valid until the next call of `next`, `release` or `request`. 0: all of the layer were handed out. `aborted` (-1):
   * the abort word is set. Throws ExpertReadError where an expert cannot be read.
   */
  next(batch: Int32Array): number {
    this.unpinHandedOut()
    this.readPending()
    this.collectWaiting()
    let stalledFrom = 0
    while (this.ready.length === 0) {
      if (this.waiting.length === 0 && this.pending.length === 0) return 0
      if (stalledFrom === 0) stalledFrom = performance.now()
      if (Atomics.load(this.abort, 0) !== 0) break
      const seen = this.queue.answers
      this.collectAhead()
      this.readPending()
      this.collectWaiting()
      if (this.ready.length === 0) this.queue.waitForAnswer(seen, abortCheckMs)
      if (this.ready.length === 0 && this.queue.lostReaders > 0) this.failLost()
    }
    if (stalledFrom > 0) this.stallSeconds += (performance.now() - stalledFrom) / 1000
    if (this.ready.length === 0) return aborted
    this.handedOut = this.ready.splice(0, batch.length)
    batch.set(this.handedOut)
    return this.handedOut.length
  }

  /** Whether `next` would return at once: for those who may not block. Slots that `next` gave are over as with `next`. */
  poll(): boolean {
    this.unpinHandedOut()
    this.collectAhead()
    this.readPending()
    if (this.ready.length > 0 || Atomics.load(this.abort, 0) !== 0) return true
    if (this.waiting.length === 0) return this.pending.length === 0
    return this.waiting.some(slot => {
      const state = this.queue.state(slot)
      return state === readState.done || state === readState.failed
    })
  }

  /** Counts time that the caller waited for `poll`. */
  countStall(seconds: number): void {
    this.stallSeconds += seconds
  }

  /** The expert of a slot that `next` gave. */
  expertOf(slot: number): number {
    return this.cache.expertOf(slot)
  }

  /** Ends the present request, finished or not: nothing stays pinned. Reads that have begun end on their own. */
  release(): void {
    for (const slot of this.handedOut) this.cache.unpin(slot)
    for (const slot of this.ready) this.cache.unpin(slot)
    for (const slot of this.waiting) {
      this.cache.unpin(slot)
      if (this.queue.cancel(slot)) this.cache.vacate(slot)
      else this.ahead.push(slot)
    }
    this.handedOut = []
    this.ready = []
    this.waiting = []
    this.pending = []
    this.layer = -1
  }

  /**
   * Has experts read that a layer will probably want, as far as that pays. `guesses`: of the layer's router, run early,
   * and of the token before; each [tokens, K], best first.
   */
  guess(layer: number, guesses: readonly ArrayLike<number>[]): void {
    if (!this.governor.on) return
    this.collectAhead()
    for (const [source, choice] of guesses.entries()) this.readAhead.guess(layer, source, choice)
  }

  /** All experts are read again when they are wanted, but for those on their way. */
  forget(): void {
    for (let slot = 0; slot < this.cache.slots; slot++) {
      if (this.cache.isReady(slot) && !this.cache.isPinned(slot)) this.cache.vacate(slot)
    }
  }

  /** Whether the expert is in a slot, or on its way into one. */
  has(layer: number, expert: number): boolean {
    return this.cache.slotOf(layer, expert) >= 0
  }

  get reading(): number {
    return this.ahead.length + this.waiting.length
  }

  /** Begins to read an expert at low priority, unless much is read ahead already. */
  prefetch(layer: number, expert: number): void {
    if (this.ahead.length >= this.aheadLimit) return
    const slot = this.cache.claimAhead(layer, expert)
    if (slot < 0) return
    this.queue.submit(slot, this.readOf(slot), true)
    this.ahead.push(slot)
  }

  /** Waits until nothing is in flight. Reads that have not begun are called off. */
  drain(): void {
    this.release()
    this.callOffAhead(() => true)
    while (this.ahead.length > 0 && this.queue.lostReaders === 0) {
      const seen = this.queue.answers
      this.collectAhead()
      if (this.ahead.length > 0) this.queue.waitForAnswer(seen, abortCheckMs)
    }
  }

  private unpinHandedOut(): void {
    for (const slot of this.handedOut) this.cache.unpin(slot)
    this.handedOut = []
  }

  private readsSoFar(): number {
    return this.cache.counters.misses + this.cache.counters.prefetchReads
  }

  private readOf(slot: number): ReadRequest {
    return {
      file: this.cache.layerOf(slot),
      offset: this.cache.expertOf(slot) * this.plan.expertSize,
      size: this.plan.expertSize,
      bank: this.plan.slotBank[slot],
      target: this.plan.slotOffset[slot],
    }
  }

  private readPending(): void {
    let taken = 0
    for (const expert of this.pending) {
      let slot = this.cache.claim(this.layer, expert)
      if (slot < 0 && this.callOffAhead(() => true) > 0) slot = this.cache.claim(this.layer, expert)
      if (slot < 0) break
      this.queue.submit(slot, this.readOf(slot), false)
      this.waiting.push(slot)
      taken++
    }
    if (taken > 0) this.pending.splice(0, taken)
  }

  private collectWaiting(): void {
    let failed = -1
    let failure: ReadFailure | null = null
    this.waiting = this.waiting.filter(slot => {
      const state = this.queue.state(slot)
      if (state === readState.done) {
        this.queue.settle(slot)
        this.cache.filled(slot)
        this.ready.push(slot)
        return false
      }
      if (state !== readState.failed) return true
      failure = this.queue.failure(slot)
      failed = this.cache.expertOf(slot)
      this.queue.settle(slot)
      this.cache.vacate(slot)
      return false
    })
    if (failure) throw this.readError(failed, failure)
  }

  private collectAhead(): void {
    this.ahead = this.ahead.filter(slot => {
      const state = this.queue.state(slot)
      if (state !== readState.done && state !== readState.failed) return true
      this.queue.settle(slot)
      if (state === readState.done) this.cache.filled(slot)
      else this.cache.vacate(slot)
      return false
    })
  }

  /** Calls off reads that nobody waits for and that have not begun. */
  private callOffAhead(which: (slot: number) => boolean): number {
    const before = this.ahead.length
    this.ahead = this.ahead.filter(slot => {
      if (!which(slot) || !this.queue.cancel(slot)) return true
      this.cache.vacate(slot, true)
      return false
    })
    return before - this.ahead.length
  }

  private readError(expert: number, failure: ReadFailure): ExpertReadError {
    const size = this.plan.expertSize
    const file = this.plan.fileNames[this.layer]
    return new ExpertReadError(this.layer, expert, file, expert * size, failureText(failure, size))
  }

  private failLost(): never {
    const expert = this.waiting.length > 0 ? this.cache.expertOf(this.waiting[0]) : this.pending[0]
    throw new ExpertReadError(
      this.layer,
      expert,
      this.plan.fileNames[this.layer],
      expert * this.plan.expertSize,
      'a reader thread has died; open the model again',
    )
  }
}
