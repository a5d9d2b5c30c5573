// One place behind the memory in which a session looks for states and keeps them: a folder, or a store that replicas share.
// A store that is slow or dead costs an answer no more than its budget: it is left alone for a while, and what happened is
// counted. Writes happen behind the answers (writeQueue.ts).
import { messageOf, OutOfMemoryError } from '../base/errors.js'
import type { Context } from '../engine/context.js'
import type { EngineModel } from '../engine/model.js'
import type { KeptState } from '../engine/state.js'
import { Breaker } from './breaker.js'
import { Notes } from './notes.js'
import { BrokenStateError, PagedStates } from './pagedStates.js'
import type { PrefixStore } from './prefixStore.js'
import type { StoredBody } from './stateObjects.js'
import type { StoreWait } from './storeWait.js'
import { TooSlowError, withTimeLimit } from './timeLimit.js'
import { type Limited, type WriteCounters, WriteQueue } from './writeQueue.js'

export interface TierOptions {
  readonly label: 'disk' | 'shared'
  /** When states are written: behind each answer, or when nothing else is to do. */
  readonly writes: 'answer' | 'idle'
  readonly budgetMs: number
  readonly namespace: string
  readonly body: StoredBody
}

export interface TierCounters extends WriteCounters {
  lookups: number
  hits: number
  misses: number
  skipped: number // not asked, because the store had not answered before
  slow: number // given up after the budget
  errors: number
  damaged: number
  restoredTokens: number
  bytesRead: number
  waitSeconds: number // that answers waited for the store before their first token
  waits: number[] // answers that waited so long, by WAIT_BOUNDS; the last: longer
  longestWaitSeconds: number
  statesWritten: number
}

/** Runs work that an answer waits for, as long as there is time left for the store, and so much more. */
type InTime = <T>(work: (limit: AbortSignal) => Promise<T>, moreMs?: number) => Promise<T>

/** Seconds. Other steps than those of reads of experts (readCounters.ts): finest around the time that answers wait at most. */
export const WAIT_BOUNDS: readonly number[] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 1, 2.5, 5, 10]

const SLOWEST_BYTES_PER_MS = 100_000 // a store that is slower than 100 MB/s is not waited for
const WORTH_READING = 16 // tokens that a stored state must be ahead of what is known
const PROBE_MS = 2_000

export class StoreTier {
  readonly counters: TierCounters = emptyCounters()
  private readonly reading = new Breaker()
  private readonly writes: WriteQueue
  private removing: Promise<unknown> = Promise.resolve()
  private readonly warned = new Set<string>()
  private opened: Promise<PagedStates> | null = null

  constructor(
    private readonly open: () => Promise<PrefixStore>,
    private readonly model: EngineModel,
    readonly options: TierOptions,
    private readonly warn: (line: string) => void,
  ) {
    const store = {
      open: async () => {
        const states = await this.states()
        await this.removing // or what is damaged would pass for being there
        return states
      },
      probe: () => this.probe(),
      onFailure: ({ message }: Error) =>
        this.warnOnce(`the ${options.label} store is not written for a while: ${message}`),
    }
    this.writes = new WriteQueue(store, this.counters)
  }

  /** Loads the store's client and lets it connect, so that the first answer does not wait for that. */
  warmUp(): void {
    this.states().catch(() => {}) // the first who asks is told
  }

  /** States that wait to be written, or are being written. */
  get pending(): number {
    return this.writes.pending
  }

  get isSkipped(): boolean {
    return this.reading.isOpen || this.writes.isSkipped
  }

  /**
   * Brings the context to the longest stored state at one of `boundaries` that is well ahead of `known`; returns its length,
   * or null. Throws only what has nothing to do with the store.
   */
  async restore(
    context: Context,
    ids: readonly number[],
    boundaries: readonly number[],
    known: number,
    scope: string,
    wait: StoreWait,
    signal: AbortSignal,
  ): Promise<number | null> {
    const lengths = [...new Set(boundaries)]
      .filter(length => length >= known + WORTH_READING && length < ids.length)
      .sort((a, b) => b - a)
    if (lengths.length === 0) return null
    return await this.ask(wait, signal, async inTime => {
      const { counters } = this
      counters.lookups++
      const length = await this.restoreFirst(context, ids, lengths, scope, inTime)
      if (length === null) counters.misses++
      else {
        counters.hits++
        counters.restoredTokens += length - known
      }
      return length
    })
  }

  /** What was noted under each of the keys, or null; null for all where the store is not asked, or does not answer. */
  async recall(
    keys: readonly string[],
    scope: string,
    wait: StoreWait,
    signal: AbortSignal,
  ): Promise<unknown[] | null> {
    return await this.ask(wait, signal, async inTime => {
      const states = await inTime(() => this.states())
      const onDamaged = (name: string, error: Error) => {
        this.counters.damaged++
        this.warn(`a stored note was dropped: ${error.message}`)
        this.removeLater(states, [name])
      }
      return await inTime(limit => this.notes(states).read(keys, scope, onDamaged, limit))
    })
  }

  /** Writes a note when it is its turn. */
  note(key: string, scope: string, value: unknown): void {
    const write = async (states: PagedStates, limited: Limited) => {
      const bytes = await limited(signal => this.notes(states).write(key, scope, value, signal))
      return { objects: 1, bytes, shared: 0 }
    }
    this.writes.push({ kind: 'note', bounded: true, write, done: () => {} })
  }

  /** A request has waited so long for this store, before its first token. */
  countWait(wait: StoreWait): void {
    const seconds = wait.of(this) / 1000
    if (seconds === 0) return
    const { counters } = this
    const step = WAIT_BOUNDS.findIndex(bound => seconds <= bound)
    counters.waits[step < 0 ? WAIT_BOUNDS.length : step]++
    counters.waitSeconds += seconds
    counters.longestWaitSeconds = Math.max(counters.longestWaitSeconds, seconds)
  }

  /** Writes a state when it is its turn, then calls `done`. `bounded`: it is dropped where too many wait. */
  write(state: KeptState, scope: string, bounded: boolean, done: () => void): void {
    const write = async (states: PagedStates, limited: Limited) => {
      const written = await states.save(state, scope, limited)
      if (written.objects > 0) this.counters.statesWritten++
      return written
    }
    this.writes.push({ kind: 'state', bounded, write, done })
  }

  /** Resolves when nothing waits to be written any more, or after `ms`. */
  async settle(ms: number): Promise<void> {
    await this.writes.settle(ms)
  }

  /** Gives up what is not written yet. */
  async close(): Promise<void> {
    await this.writes.close()
    const states = await this.opened?.catch(() => null)
    await withTimeLimit(PROBE_MS, async () => await states?.store.close()).catch(() => {})
  }

  /**
   * Asks for something that an answer waits for; null where the store is left alone, or does not answer in time. What is
   * waited for inside `inTime` counts, all of it together; the engine, which may be busy, is not the store's fault.
   */
  private async ask<T>(wait: StoreWait, signal: AbortSignal, work: (inTime: InTime) => Promise<T>): Promise<T | null> {
    const { counters } = this
    if (!this.reading.allows(() => this.probe())) {
      counters.skipped++
      return null
    }
    const inTime: InTime = async (work, moreMs = 0) => {
      const started = performance.now()
      const left = Math.max(0, this.options.budgetMs - wait.of(this))
      try {
        return await withTimeLimit(left + moreMs, work, signal)
      } finally {
        wait.add(this, performance.now() - started)
      }
    }
    try {
      const result = await work(inTime)
      this.reading.succeeded()
      return result
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof OutOfMemoryError) throw error
      if (error instanceof TooSlowError) counters.slow++
      else counters.errors++
      this.reading.failed()
      this.warnOnce(`the ${this.options.label} store is not read for a while: ${messageOf(error)}`)
      return null
    }
  }

  private async restoreFirst(
    context: Context,
    ids: readonly number[],
    lengths: readonly number[],
    scope: string,
    inTime: InTime,
  ): Promise<number | null> {
    const states = await inTime(() => this.states())
    const names = states.names(ids, scope)
    const found = await inTime(limit => states.find(names, lengths, limit))
    for (const length of found) {
      try {
        // A long state takes its time, at a pace that is worth it.
        const moreMs = states.bytesOf(length) / SLOWEST_BYTES_PER_MS
        const read = (work: (limit: AbortSignal) => Promise<void>) => inTime(work, moreMs)
        this.counters.bytesRead += await states.restore(context, names, ids.slice(0, length), read)
        return length
      } catch (error) {
        if (!(error instanceof BrokenStateError)) throw error
        if (error.damage !== null) this.counters.damaged++
        this.warn(`a stored state of ${length} tokens was dropped: ${error.message}`)
        this.removeLater(states, [...new Set([error.object, await names.state(length)])])
      }
    }
    return null
  }

  private removeLater(states: PagedStates, useless: readonly string[]): void {
    const remove = (name: string) => withTimeLimit(PROBE_MS, limit => states.store.remove(name, limit))
    this.removing = Promise.allSettled([this.removing, ...useless.map(remove)])
  }

  private states(): Promise<PagedStates> {
    const { namespace, body } = this.options
    this.opened ??= this.open().then(store => new PagedStates(store, this.model, namespace, body))
    // A store that could not be opened may be there later.
    this.opened.catch(() => {
      this.opened = null
    })
    return this.opened
  }

  private notes({ store }: PagedStates): Notes {
    return new Notes(store, this.options.namespace, this.model.fingerprint)
  }

  private async probe(): Promise<void> {
    await withTimeLimit(PROBE_MS, async signal => {
      await (await this.states()).store.has([`${this.options.namespace}/probe`], signal)
    })
  }

  private warnOnce(line: string): void {
    if (this.warned.has(line)) return
    this.warned.add(line)
    this.warn(line)
  }
}

function emptyCounters(): TierCounters {
  return {
    lookups: 0,
    hits: 0,
    misses: 0,
    skipped: 0,
    slow: 0,
    errors: 0,
    damaged: 0,
    restoredTokens: 0,
    bytesRead: 0,
    waitSeconds: 0,
    waits: new Array(WAIT_BOUNDS.length + 1).fill(0),
    longestWaitSeconds: 0,
    statesWritten: 0,
    objects: 0,
    objectsShared: 0,
    bytesWritten: 0,
    writeErrors: 0,
    dropped: 0,
  }
}
