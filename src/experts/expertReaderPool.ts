// Reads experts for those who cannot block: the same reader threads and rings, awaited. The webgpu backend and the disk
// measurements use it on the main thread. Keeps no cache: which expert to read, and where to, is the caller's decision.
import { ReadError } from '../errors.js'
import { type NodeReaders, type ReaderOptions, startNodeReaders } from './nodeReaders.js'
import { failureText, ReadRing, type ReadTotals, readState } from './readRing.js'

export type ReaderPoolOptions = Omit<ReaderOptions, 'entries' | 'onAnswer' | 'onLost'> & {
  /** Reads under way or queued at once; more wait their turn here. */
  readonly depth?: number
}

export type ReadPriority = 'demand' | 'prefetch'

interface Waiting {
  readonly file: number
  readonly offset: number
  readonly size: number
  readonly resolve: () => void
  readonly reject: (error: Error) => void
}

interface Queued extends Waiting {
  readonly bank: number
  readonly target: number
  priority: ReadPriority
}

export class ExpertReaderPool {
  readonly direct: boolean
  private readonly readers: NodeReaders
  private readonly ring: ReadRing
  private readonly free: number[]
  private readonly waiting = new Map<number, Waiting>() // by entry
  private readonly queue: Queued[] = []
  private closed = false

  constructor(private readonly options: ReaderPoolOptions) {
    const depth = options.depth ?? 64
    this.readers = startNodeReaders({
      ...options,
      entries: depth,
      onAnswer: entry => this.answered(entry),
      onLost: () => {
        this.closed = true
        this.rejectAll('a reader thread has died')
      },
    })
    this.direct = this.readers.direct
    this.ring = new ReadRing(this.readers.ring)
    this.free = Array.from({ length: depth }, (_, i) => i)
  }

  get totals(): ReadTotals {
    return this.ring.totals()
  }

  /** Fills bytes [target, target + size) of a bank from a file. Rejects with ReadError after all retries. */
  read(
    file: number,
    offset: number,
    size: number,
    bank: number,
    target: number,
    priority: ReadPriority,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.closed) return reject(new ReadError(this.options.files[file], offset, size, 'the readers are closed'))
      this.queue.push({ file, offset, size, bank, target, priority, resolve, reject })
      this.submit()
    })
  }

  /** A read that waits among the prefetches is now wanted. */
  promote(file: number, offset: number): void {
    for (const read of this.queue) {
      if (read.file === file && read.offset === offset) read.priority = 'demand'
    }
    for (const [entry, read] of this.waiting) {
      if (read.file === file && read.offset === offset) this.ring.promote(entry)
    }
  }

  /** Lets the reads that have begun end; all others are rejected. */
  async close(): Promise<void> {
    this.closed = true
    await this.readers.close()
    this.rejectAll('the readers were closed')
  }

  private submit(): void {
    while (this.free.length > 0 && this.queue.length > 0) {
      const demand = this.queue.findIndex(read => read.priority === 'demand')
      const [read] = this.queue.splice(Math.max(0, demand), 1)
      const entry = this.free.pop() as number
      if (this.waiting.size === 0) this.readers.setRef(true)
      this.waiting.set(entry, read)
      this.ring.submit(entry, read, read.priority === 'prefetch')
    }
  }

  private answered(entry: number): void {
    const read = this.waiting.get(entry)
    if (!read) return
    this.waiting.delete(entry)
    const failure = this.ring.state(entry) === readState.failed ? this.ring.failure(entry) : null
    this.ring.settle(entry)
    this.free.push(entry)
    this.submit()
    if (this.waiting.size === 0) this.readers.setRef(false)
    if (failure) read.reject(this.error(read, failureText(failure, read.size)))
    else read.resolve()
  }

  private rejectAll(detail: string): void {
    const reads = [...this.waiting.values(), ...this.queue.splice(0)]
    this.waiting.clear()
    for (const read of reads) read.reject(this.error(read, detail))
  }

  private error(read: Waiting, detail: string): ReadError {
    return new ReadError(this.options.files[read.file], read.offset, read.size, detail)
  }
}
