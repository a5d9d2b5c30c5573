// The models that a server offers, and which of them are in memory: loaded when a request asks for
// one, kept while they are leased and for a set time after, unloaded when another needs the memory.
// Requests are served FIFO: a model that is to be unloaded accepts no new ones, so that each
// request gets its model. Does not depend on what a model is.
import { messageOf } from '../../base/errors.js'

/** A model that can be had. */
export interface Offer<L extends Loadable> {
  readonly id: string
  readonly contextLength: number | null // where it is known before it is loaded
  /** Stays once it is loaded. */
  readonly isPinned: boolean
  load(hooks: LoadHooks): Promise<L>
}

/** What the one who loads a model is told, and tells. */
export interface LoadHooks {
  readonly signal: AbortSignal
  onProgress(progress: LoadProgress): void
}

export interface LoadProgress {
  readonly phase: string
  readonly loaded: number
  readonly total: number
}

export interface Loadable {
  /** It cannot compute any more and has to be loaded again. */
  readonly hasFailed: boolean
  close(): Promise<void>
}

/** A loaded model, the caller's to use until it is released. */
export interface Lease<L> {
  readonly id: string
  readonly loaded: L
  /** How long the model stays when it is idle, instead of the shelf's own time; until it is unloaded or told otherwise. */
  keepFor(ms: number): void
  release(): void
}

export type ShelfState = 'unloaded' | 'loading' | 'loaded' | 'unloading'

export interface ShelfOptions {
  /** Models in memory at once. */
  readonly mostLoaded: number
  /** How long an idle one stays. */
  readonly keepMs: number
  /** Loading failed because other models have taken the memory. */
  readonly isShortage: (error: unknown) => boolean
  readonly onEvent?: (line: string) => void
  readonly now?: () => number // ms
}

export interface ShelfEntry<L extends Loadable> {
  readonly offer: Offer<L>
  readonly state: ShelfState
  readonly loaded: L | null
  readonly progress: LoadProgress | null // while it is being loaded
  readonly idleUntil: number | null // when it will be unloaded, as in Date.now(), where nobody uses it
}

interface Slot<L extends Loadable> extends ShelfEntry<L> {
  state: ShelfState
  loaded: L | null
  progress: LoadProgress | null
  stopping: AbortController | null // while it is being loaded
  uses: number
  lastUsed: number
  idleUntil: number | null
  keepMs: number | null // null: as long as the others
  isRetiring: boolean // another waits for its room: takes no new requests
  timer: ReturnType<typeof setTimeout> | null
  shortages: { readonly beside: readonly Slot<L>[]; readonly until: number }[] // did not fit beside these
}

interface Waiter<L extends Loadable> {
  readonly slot: Slot<L>
  grant(lease: Lease<L>): void
  refuse(error: unknown): void
}

export const LONGEST_TIMER_MS = 2 ** 31 - 1 // 24 days: longer ones fire at once
const BUSY_MS = 100 // until another has moved
const SHORTAGE_MS = 600_000 // then it is tried again: what else took memory may be gone

export class ModelShelf<L extends Loadable> {
  private readonly slots: Map<string, Slot<L>>
  private waiters: Waiter<L>[] = []
  private clock = 0
  private isMoving = false // one model at a time is loaded or unloaded
  private refusal: unknown // of those who come after it was closed
  private closed = false
  readonly counters = { loads: 0, unloads: 0, failures: 0 }

  constructor(
    offers: readonly Offer<L>[],
    private readonly options: ShelfOptions,
  ) {
    this.slots = new Map()
    for (const offer of offers) this.add(offer)
  }

  get list(): readonly ShelfEntry<L>[] {
    return [...this.slots.values()]
  }

  find(id: string): ShelfEntry<L> | null {
    return this.slots.get(id) ?? null
  }

  /** One more model that can be had; one of that name that is there already stays. */
  add(offer: Offer<L>): void {
    if (this.slots.has(offer.id)) return
    const fresh = { state: 'unloaded', loaded: null, uses: 0, lastUsed: 0, isRetiring: false } as const
    const nothing = { progress: null, stopping: null, timer: null, idleUntil: null, keepMs: null }
    this.slots.set(offer.id, { offer, ...fresh, ...nothing, shortages: [] })
  }

  /** Gives up loading a model: whoever waits for it gets `reason`. False where it is not being loaded. */
  stopLoading(id: string, reason: unknown): boolean {
    const stopping = this.slots.get(id)?.stopping ?? null
    stopping?.abort(reason)
    return stopping !== null
  }

  /** Unloads a model when its last answer has ended, which may be now. False where it stays, because it is pinned. */
  letGo(id: string): boolean {
    const slot = this.slots.get(id)
    if (slot === undefined || slot.offer.isPinned) return false
    slot.keepMs = 0
    if (slot.state === 'loaded' && slot.uses === 0) this.unloadLater(slot)
    return true
  }

  /** The one that was used last, of those in memory. */
  get latest(): { readonly id: string; readonly loaded: L } | null {
    const inMemory = [...this.slots.values()].filter(slot => slot.loaded !== null)
    const slot = inMemory.sort((a, b) => b.lastUsed - a.lastUsed)[0]
    return slot === undefined ? null : { id: slot.offer.id, loaded: slot.loaded as L }
  }

  has(id: string): boolean {
    return this.slots.has(id)
  }

  isLoaded(id: string): boolean {
    const slot = this.slots.get(id)
    return slot?.state === 'loaded' && !slot.isRetiring && !(slot.loaded as L).hasFailed
  }

  /** Waits for its turn and, where need be, until the model is loaded. Throws what loading threw. */
  async acquire(id: string, signal?: AbortSignal): Promise<Lease<L>> {
    signal?.throwIfAborted()
    if (this.closed) throw this.refusal
    const slot = this.slots.get(id)
    if (slot === undefined) throw new Error(`there is no model '${id}'`)
    return await new Promise<Lease<L>>((resolve, reject) => {
      const leave = () => {
        this.waiters = this.waiters.filter(other => other !== waiter)
        reject(signal?.reason)
        this.advance()
      }
      const waiter: Waiter<L> = {
        slot,
        grant: lease => {
          signal?.removeEventListener('abort', leave)
          resolve(lease)
        },
        refuse: error => {
          signal?.removeEventListener('abort', leave)
          reject(error)
        },
      }
      signal?.addEventListener('abort', leave, { once: true })
      this.waiters.push(waiter)
      this.advance()
    })
  }

  /** Refuses who waits and who comes, gives up what is being loaded, unloads all. */
  async close(refusal: unknown): Promise<void> {
    this.closed = true
    this.refusal = refusal
    for (const { refuse } of this.waiters.splice(0)) refuse(refusal)
    for (const slot of this.slots.values()) {
      if (slot.timer !== null) clearTimeout(slot.timer)
      slot.stopping?.abort(refusal)
    }
    while (this.isMoving) await new Promise(resolve => setTimeout(resolve, 5))
    await Promise.all([...this.slots.values()].map(slot => slot.loaded?.close()))
  }

  /** Gives models to those who can have one, and sets in motion what the first of the others waits for. */
  private advance(): void {
    if (this.closed) return
    for (const slot of this.slots.values()) slot.isRetiring = false
    const rest: Waiter<L>[] = []
    const wanted = new Set<Slot<L>>()
    for (const waiter of this.waiters) {
      const { slot } = waiter
      if (slot.state === 'loaded' && (slot.loaded as L).hasFailed) slot.isRetiring = true
      if (slot.state === 'loaded' && !slot.isRetiring) this.grant(waiter)
      else {
        rest.push(waiter)
        if (slot.state !== 'unloaded' || wanted.has(slot)) continue
        wanted.add(slot)
        this.makeRoomFor(slot, wanted.size)
      }
    }
    this.waiters = rest
    if (this.isMoving) return
    const gone = [...this.slots.values()].find(slot => slot.isRetiring && slot.state === 'loaded' && slot.uses === 0)
    if (gone !== undefined) {
      void this.unload(gone)
      return
    }
    const next = rest.find(({ slot }) => slot.state === 'unloaded')
    if (next !== undefined && this.fits(next.slot, 1, this.inMemory)) void this.load(next.slot)
  }

  private get inMemory(): Slot<L>[] {
    return [...this.slots.values()].filter(({ state }) => state !== 'unloaded')
  }

  /** Whether there is room for `count` more of which this is one, as far as is known, beside those. */
  private fits(slot: Slot<L>, count: number, beside: readonly Slot<L>[]): boolean {
    if (beside.length + count > this.options.mostLoaded) return false
    slot.shortages = slot.shortages.filter(({ until }) => this.now() <= until)
    return !slot.shortages.some(shortage => shortage.beside.every(other => beside.includes(other)))
  }

  private now(): number {
    return this.options.now?.() ?? performance.now()
  }

  /** The one used longest ago has to go: now, if it is idle, or when its last answer ends. */
  private makeRoomFor(slot: Slot<L>, count: number): void {
    const staying = this.inMemory.filter(({ state, isRetiring }) => state !== 'unloading' && !isRetiring)
    if (this.fits(slot, count, staying)) return
    const candidates = staying.filter(({ state, offer }) => state === 'loaded' && !offer.isPinned)
    const victim = candidates.sort((a, b) => Number(a.uses > 0) - Number(b.uses > 0) || a.lastUsed - b.lastUsed)[0]
    if (victim !== undefined) victim.isRetiring = true
  }

  private grant({ slot, grant }: Waiter<L>): void {
    slot.uses++
    slot.lastUsed = ++this.clock
    this.stopTimer(slot)
    let released = false
    grant({
      id: slot.offer.id,
      loaded: slot.loaded as L,
      keepFor: ms => {
        slot.keepMs = ms
      },
      release: () => {
        if (released) return
        released = true
        slot.uses--
        if (slot.uses === 0 && !slot.offer.isPinned) this.unloadLater(slot)
        this.advance()
      },
    })
  }

  private unloadLater(slot: Slot<L>, keepMs = slot.keepMs ?? this.options.keepMs): void {
    this.stopTimer(slot)
    if (keepMs > LONGEST_TIMER_MS) return
    slot.idleUntil = Date.now() + keepMs
    slot.timer = setTimeout(() => {
      this.stopTimer(slot)
      if (slot.uses > 0 || slot.state !== 'loaded' || this.closed) return
      if (this.isMoving) this.unloadLater(slot, BUSY_MS)
      else void this.unload(slot)
    }, keepMs)
    slot.timer.unref?.()
  }

  private stopTimer(slot: Slot<L>): void {
    if (slot.timer !== null) clearTimeout(slot.timer)
    slot.timer = null
    slot.idleUntil = null
  }

  private async load(slot: Slot<L>): Promise<void> {
    this.isMoving = true
    slot.state = 'loading'
    slot.keepMs = null
    const { id } = slot.offer
    const stopping = new AbortController()
    slot.stopping = stopping
    const hooks: LoadHooks = {
      signal: stopping.signal,
      onProgress: progress => {
        slot.progress = progress
      },
    }
    try {
      this.options.onEvent?.(`loading ${id}`)
      const loaded = await slot.offer.load(hooks)
      this.counters.loads++
      slot.loaded = loaded
      slot.state = 'loaded'
      // Else it would be loaded again and again.
      if (loaded.hasFailed) this.refuseAll(slot, new Error(`${id} failed while it was loaded`))
    } catch (failure) {
      const error = stopping.signal.aborted ? stopping.signal.reason : failure
      slot.state = 'unloaded'
      const canGive = this.inMemory.some(other => !other.offer.isPinned)
      // Where others have the memory, it is theirs to give; else nobody's waiting helps.
      if (this.options.isShortage(error) && canGive && !this.closed) {
        slot.shortages.push({ beside: this.inMemory, until: this.now() + SHORTAGE_MS })
      } else this.refuseAll(slot, error)
    }
    slot.progress = null
    slot.stopping = null
    this.isMoving = false
    if (slot.state === 'loaded' && !this.waiters.some(waiter => waiter.slot === slot)) this.unloadLater(slot)
    this.advance()
  }

  private refuseAll(slot: Slot<L>, error: unknown): void {
    this.counters.failures++
    const refused = this.waiters.filter(waiter => waiter.slot === slot)
    this.waiters = this.waiters.filter(waiter => waiter.slot !== slot)
    for (const { refuse } of refused) refuse(error)
  }

  private async unload(slot: Slot<L>): Promise<void> {
    this.isMoving = true
    slot.state = 'unloading'
    const { loaded } = slot
    slot.loaded = null
    this.stopTimer(slot)
    try {
      this.options.onEvent?.(`unloading ${slot.offer.id}`)
      await loaded?.close()
    } catch (error) {
      this.options.onEvent?.(`${slot.offer.id} did not close well: ${messageOf(error)}`)
    }
    slot.state = 'unloaded'
    this.counters.unloads++
    this.isMoving = false
    this.advance()
  }
}
