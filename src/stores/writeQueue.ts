// What is to be written to a store: one job after the other, behind the answers. Where too many wait, or wait too long, the oldest
// are dropped; while a store takes no writes, all are. Whatever becomes of a job, its `done` is called once.
import { Breaker } from './breaker.js'
import type { PagedStates, Written } from './pagedStates.js'
import { withTimeLimit } from './timeLimit.js'

/** Runs work on one object, as long as there is time for it. */
export type Limited = <T>(work: (signal: AbortSignal) => Promise<T>) => Promise<T>

export interface WriteJob {
  readonly kind: 'state' | 'note'
  /** It is dropped where too many wait, or when it has waited too long. */
  readonly bounded: boolean
  readonly write: (states: PagedStates, limited: Limited) => Promise<Written>
  readonly done: () => void
}

export interface WriteCounters {
  objects: number // written
  objectsShared: number // of states that were written, but were there already
  bytesWritten: number
  writeErrors: number
  dropped: number // jobs that were not done: too many, too late, or no store
}

export interface QueuedStore {
  /** The store, when it can be written. */
  open(): Promise<PagedStates>
  /** Asks it something, to see whether it is there. */
  probe(): Promise<void>
  /** It took no write, and is left alone for a while. */
  onFailure(error: Error): void
}

const MOST_PENDING = { state: 8, note: 64 }
const OLDEST_MS = 30_000
const OBJECT_MS = 10_000 // to write an object

export class WriteQueue {
  private readonly breaker = new Breaker()
  private readonly stopped = new AbortController()
  private jobs: (WriteJob & { readonly since: number })[] = []
  private running: Promise<void> | null = null

  constructor(
    private readonly store: QueuedStore,
    private readonly counters: WriteCounters,
  ) {}

  /** Jobs that wait, and the one that is being done. */
  get pending(): number {
    return this.jobs.length + (this.running === null ? 0 : 1)
  }

  get isSkipped(): boolean {
    return this.breaker.isOpen
  }

  push(job: WriteJob): void {
    if (this.stopped.signal.aborted || !this.breaker.allows(() => this.store.probe())) {
      this.counters.dropped++
      job.done()
      return
    }
    this.jobs.push({ ...job, since: performance.now() })
    const waiting = this.jobs.filter(({ bounded, kind }) => bounded && kind === job.kind)
    if (waiting.length > MOST_PENDING[job.kind]) this.drop(waiting[0]) // newer ones of a conversation are worth more
    this.running ??= this.work()
  }

  /** Resolves when nothing waits any more, or after `ms`. */
  async settle(ms: number): Promise<void> {
    await withTimeLimit(ms, async () => await this.running).catch(() => {})
  }

  /** Gives up what is not written yet. */
  async close(): Promise<void> {
    this.stopped.abort(new Error('the store is closed'))
    for (const job of [...this.jobs]) this.drop(job)
    await this.running
  }

  private async work(): Promise<void> {
    await Promise.resolve() // `running` is set before anything ends
    for (let job = this.jobs.shift(); job !== undefined; job = this.jobs.shift()) {
      try {
        if (job.bounded && performance.now() - job.since > OLDEST_MS) this.counters.dropped++
        else await this.save(job)
      } finally {
        job.done()
      }
    }
    this.running = null
  }

  private async save({ write }: WriteJob): Promise<void> {
    const { counters } = this
    try {
      const limited: Limited = work => withTimeLimit(OBJECT_MS, work, this.stopped.signal)
      const states = await limited(() => this.store.open())
      const { objects, bytes, shared } = await write(states, limited)
      counters.objects += objects
      counters.objectsShared += shared
      counters.bytesWritten += bytes
      this.breaker.succeeded()
    } catch (error) {
      counters.dropped++
      if (this.stopped.signal.aborted) return
      counters.writeErrors++
      this.breaker.failed()
      this.store.onFailure(error as Error)
    }
  }

  private drop(job: WriteJob): void {
    this.jobs = this.jobs.filter(other => other !== job)
    this.counters.dropped++
    job.done()
  }
}
