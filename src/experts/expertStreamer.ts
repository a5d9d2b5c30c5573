// Brings experts into memory while a backend computes with those that are there. Synchronous: it runs in the thread that
// leads the computation and blocks in shared memory when nothing is ready. What to read, hand out and call off is decided
// by the core (streamerCore.ts), reading is the readers'; this joins the two. It keeps the disk busy (all misses of a layer
// are asked for at once), hands out hits first, lets demands overtake prefetches, and works with any number of slots: a
// layer that wants more experts than fit is served in turns, each expert read at most once.
//
//   streamer.beginStep()
//   for each layer:
//     streamer.request(layer, experts)              // ascending; reads begin now
//     … shared expert …
//     while ((n = streamer.next(batch)) > 0)        // blocks only when none is ready
//       … compute the experts in slots batch[0..n) …
//     streamer.release()                            // always, also after an error or an abort
//   streamer.endStep(seconds)
import type { PolicyName } from './evictionPolicy.js'
import { ExpertCache } from './expertCache.js'
import { LayerAhead, ReadAhead } from './prefetch.js'
import { PrefetchGovernor } from './prefetchGovernor.js'
import { failureText, type ReadFailure, type ReadRequest, readState } from './readers/readRing.js'
import { StreamerCore, type StreamerStats } from './streamerCore.js'

/** What the streamer needs of the ring: tests answer reads without threads. An entry is a slot. */
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
  readonly layerNumbers?: readonly number[] // [layers], for errors: the model's own; absent: 0, 1, 2, …
}

/** Returned by `next` when the abort word was set while it waited. */
export const ABORTED = -1

const ABORT_CHECK_MS = 10
const SOURCES = 2 // of guesses: the next layer's router, the token before
const LEAST_TRUE = 0.6 // share of a kind of guess that must come true for it to be read
const MOST_AHEAD = 64 // experts

export class ExpertStreamer {
  private readonly core: StreamerCore
  private readonly governor: PrefetchGovernor
  private readonly readAhead: ReadAhead
  private readonly layerAhead: LayerAhead
  private readsAtStep = 0

  constructor(
    private readonly plan: StreamerPlan,
    private readonly queue: ReadQueue,
    private readonly abort: Int32Array, // [1], not 0: stop waiting
    resident?: Uint8Array, // [layers, experts], shows which experts are in memory
  ) {
    const { layers, experts, expertSize, policy, fileNames, layerNumbers } = plan
    const shape = { layers, experts, slots: plan.slotBank.length, expertBytes: expertSize, policy }
    const cache = new ExpertCache(shape, { resident })
    const orders = {
      ask: (slot: number, ahead: boolean) => queue.submit(slot, this.readOf(slot), ahead),
      promote: (slot: number) => queue.promote(slot),
      callOff: (slot: number) => queue.cancel(slot),
    }
    const aheadLimit = Math.min(MOST_AHEAD, cache.slots >> 2)
    this.core = new StreamerCore(cache, orders, { aheadLimit, expertSize, fileNames, layerNumbers })
    this.governor = new PrefetchGovernor(plan.prefetch)
    // A read costs the processor time that computing needs, so an idle disk is no reason for one.
    const guesses = { k: plan.expertsPerToken, sources: SOURCES, least: LEAST_TRUE, leastSpare: LEAST_TRUE }
    this.readAhead = new ReadAhead(this.core, { layers, experts, ...guesses })
    this.layerAhead = new LayerAhead(this.core, { layers, experts, most: cache.slots >> 1 })
  }

  get stats(): StreamerStats {
    return this.core.stats
  }

  /** Whether a prefetch would be acted on now; spares the caller the work of predicting. */
  get wantsPrefetch(): boolean {
    return this.governor.on && this.core.mayReadAhead
  }

  beginStep(): void {
    this.core.cache.tick()
    this.readsAtStep = this.readsSoFar()
    this.readAhead.forget()
  }

  /** After a step that was neither aborted nor failed. `mayGuess`: it was of a kind for which guesses are made. */
  endStep(seconds: number, mayGuess: boolean): void {
    if (mayGuess) this.governor.stepDone(seconds, this.readsSoFar() - this.readsAtStep)
  }

  /** Asks for a layer's experts, each once: pins those that are there and begins to read the others in this order. */
  request(layer: number, experts: ArrayLike<number>): void {
    this.collect()
    this.layerAhead.end()
    this.core.request(layer, experts)
    if (this.readAhead.isOpen(layer)) this.readAhead.judge(layer, new Set(Array.from(experts)))
  }

  /**
   * Puts slots with experts that are ready into `batch` and returns how many; waits for one where none is. They stay
   * valid until the next call of `next`, `release` or `request`. 0: all of the layer were handed out. `aborted` (-1):
   * the abort word is set. Throws ExpertReadError where an expert cannot be read.
   */
  next(batch: Int32Array): number {
    const { core, queue } = this
    core.giveBack()
    core.goOn()
    this.collect()
    let stalledFrom = 0
    while (!core.hasReady && !core.isComplete && core.failure === null) {
      if (core.isStuck) throw new Error('no expert slot can be emptied')
      if (stalledFrom === 0) stalledFrom = performance.now()
      if (Atomics.load(this.abort, 0) !== 0) break
      const seen = queue.answers
      if (this.collect()) continue
      queue.waitForAnswer(seen, ABORT_CHECK_MS)
      if (queue.lostReaders > 0 && !this.collect()) core.lost('a reader thread has died; open the model again')
    }
    if (stalledFrom > 0) core.stallSeconds += (performance.now() - stalledFrom) / 1000
    this.layerAhead.goOn()
    if (core.failure !== null) throw core.failure
    const slots = core.take(batch.length)
    batch.set(slots)
    return slots.length > 0 || core.isComplete ? slots.length : ABORTED
  }

  /** Whether `next` would return at once: for those who may not block. Slots that `next` gave are over as with `next`. */
  poll(): boolean {
    this.core.giveBack()
    this.core.goOn()
    this.collect()
    const { hasReady, isComplete, failure } = this.core
    return hasReady || isComplete || failure !== null || Atomics.load(this.abort, 0) !== 0
  }

  /** Counts time that the caller waited for `poll`. */
  countStall(seconds: number): void {
    this.core.stallSeconds += seconds
  }

  /** The expert of a slot that `next` gave. */
  expertOf(slot: number): number {
    return this.core.cache.expertOf(slot)
  }

  /** Ends the present request, finished or not: nothing stays pinned. Reads that have begun end on their own. */
  release(): void {
    this.core.release()
    this.layerAhead.goOn()
  }

  /** The step is given up: nothing more is read for its coming layers. */
  giveUp(): void {
    this.layerAhead.giveUp()
  }

  /**
   * Has experts read that a layer will probably want, as far as that pays. `guesses`: of the layer's router, run early,
   * and of the token before; each [tokens, K], best first.
   */
  guess(layer: number, guesses: readonly ArrayLike<number>[]): void {
    if (!this.governor.on) return
    this.collect()
    for (const [source, choice] of guesses.entries()) this.readAhead.guess(layer, source, choice)
  }

  /**
   * A prompt wants so many experts of the present layer. Has those of the next one read: all of them if most are to be
   * expected, else those that `guess` names, the surest first.
   */
  readNextLayer(layer: number, wanted: number, guess: () => readonly number[]): void {
    if (!this.plan.prefetch) return
    this.layerAhead.begin(layer, this.layerAhead.wantsMost(wanted) ? undefined : guess())
    this.layerAhead.goOn()
  }

  /** All experts are read again when they are wanted, but for those on their way. */
  forget(): void {
    this.core.forget()
  }

  /** Waits until nothing is in flight. Reads that have not begun are called off. */
  drain(): void {
    const { core, queue } = this
    core.release()
    core.callOffAhead(() => true)
    while (core.reading > 0 && queue.lostReaders === 0) {
      const seen = queue.answers
      if (!this.collect()) queue.waitForAnswer(seen, ABORT_CHECK_MS)
    }
  }

  private readsSoFar(): number {
    const { expertMisses, prefetchReads } = this.core.stats
    return expertMisses + prefetchReads
  }

  private readOf(slot: number): ReadRequest {
    const { cache } = this.core
    return {
      file: cache.layerOf(slot),
      offset: cache.expertOf(slot) * this.plan.expertSize,
      size: this.plan.expertSize,
      bank: this.plan.slotBank[slot],
      target: this.plan.slotOffset[slot],
    }
  }

  private failureText(slot: number): string {
    return failureText(this.queue.failure(slot), this.plan.expertSize)
  }

  /** Takes up what has ended. Whether anything has. */
  private collect(): boolean {
    const { core, queue } = this
    let any = false
    core.forEachInFlight(slot => {
      const state = queue.state(slot)
      if (state !== readState.done && state !== readState.failed) return
      const fault = state === readState.failed ? { detail: this.failureText(slot) } : null
      queue.settle(slot)
      core.ended(slot, fault)
      any = true
    })
    if (any) core.goOn()
    return any
  }
}
