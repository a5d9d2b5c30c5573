// Reads experts for those who cannot block: the same reader threads and rings, awaited. The webgpu backend and the disk
// measurements use it on the main thread. Keeps no cache: which expert to read, and where to, is the caller's decision.
//
// While reads come in, this looks for them once per turn of the event loop: a message per read would cost more than the
// look, and come later. When nothing has come for a while it sleeps, and the next read to end calls it. Of reads ahead
// one is answered per turn, so that whoever waits for the GPU, or for a demand, gets the thread in between.
import { ReadError } from '../../base/errors.js'
import { type NodeReaders, type ReaderOptions, startNodeReaders } from './nodeReaders.js'
import type { ReadTotals } from './readCounters.js'
import { failureText, type ReadPriority, ReadRing, readState } from './readRing.js'

export type ReaderPoolOptions = Omit<ReaderOptions, 'entries' | 'onAnswer' | 'onLost'> & {
  /** Reads under way or queued at once; more wait their turn here. */
  readonly depth?: number
}

interface Asked {
  readonly file: number
  readonly offset: number
  readonly size: number
  readonly bank: number
  readonly target: number
  priority: ReadPriority
  readonly resolve: () => void
  readonly reject: (error: Error) => void
}

const PATIENCE_MS = 2 // of looking in vain

export class ExpertReaderPool {
  readonly direct: boolean
  private readonly readers: NodeReaders
  private readonly ring: ReadRing
  private readonly free: number[]
  private readonly waiting = new Map<number, Asked>() // by entry
  private readonly queue: Asked[] = []
  private closed = false
  private looking = false
  private lastAnswer = 0 // ms

  constructor(private readonly options: ReaderPoolOptions) {
    const depth = options.depth ?? 64
    this.readers = startNodeReaders({
      ...options,
      entries: depth,
      onAnswer: () => this.look(),
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
      if (read.file !== file || read.offset !== offset) continue
      read.priority = 'demand'
      this.ring.promote(entry)
    }
  }

  /** Takes back a read that has not begun: it neither resolves nor rejects. False: it has begun, and will end. */
  callOff(file: number, offset: number): boolean {
    const isIt = (read: Asked) => read.file === file && read.offset === offset
    const at = this.queue.findIndex(isIt)
    if (at >= 0) return this.queue.splice(at, 1).length > 0
    const entry = [...this.waiting].find(([, read]) => isIt(read))?.[0]
    if (entry === undefined || !this.ring.cancel(entry)) return false
    this.waiting.delete(entry)
    this.free.push(entry)
    this.submit()
    return true
  }

  /** Lets the reads that have begun end; all others are rejected. */
  async close(): Promise<void> {
    this.closed = true
    await this.readers.close()
    while (this.takeAnswers()) {}
    this.rejectAll('the readers were closed')
  }

  private submit(): void {
    while (this.free.length > 0 && this.queue.length > 0) {
      const demand = this.queue.findIndex(read => read.priority === 'demand')
      const [read] = this.queue.splice(Math.max(0, demand), 1)
      const entry = this.free.pop() as number
      this.waiting.set(entry, read)
      this.ring.submit(entry, read, read.priority === 'prefetch')
    }
    this.look()
  }

  /** Looks for ended reads in the next turns, if there are any to come. */
  private look(): void {
    if (this.looking || this.waiting.size === 0) return
    this.looking = true
    if (this.ring.isAsleep) {
      this.ring.isAsleep = false
      this.readers.setRef(false) // the turns keep the process alive
    }
    this.lastAnswer = performance.now()
    setImmediate(() => this.turn())
  }

  private turn(): void {
    if (this.takeAnswers()) this.lastAnswer = performance.now()
    const waits = this.waiting.size > 0
    if (waits && performance.now() - this.lastAnswer < PATIENCE_MS) setImmediate(() => this.turn())
    else {
      this.looking = false
      if (waits) this.sleep()
    }
  }

  private sleep(): void {
    this.ring.isAsleep = true
    this.readers.setRef(true)
    // One may have ended before its reader could see that.
    if (this.takeAnswers()) this.look()
  }

  /** All demands that have ended, and one read ahead. Whether there were any. */
  private takeAnswers(): boolean {
    let any = false
    let ahead = false
    for (const [entry, { priority }] of this.waiting) {
      const state = this.ring.state(entry)
      if (state !== readState.done && state !== readState.failed) continue
      if (priority === 'prefetch') {
        if (ahead) continue
        ahead = true
      }
      any = true
      this.answered(entry)
    }
    return any
  }

  private answered(entry: number): void {
    const read = this.waiting.get(entry)
    if (!read) return
    this.waiting.delete(entry)
    const failure = this.ring.state(entry) === readState.failed ? this.ring.failure(entry) : null
    this.ring.settle(entry)
    this.free.push(entry)
    this.submit()
    if (failure) read.reject(this.error(read, failureText(failure, read.size)))
    else read.resolve()
  }

  private rejectAll(detail: string): void {
    const reads = [...this.waiting.values(), ...this.queue.splice(0)]
    this.waiting.clear()
    for (const read of reads) read.reject(this.error(read, detail))
  }

  private error(read: Asked, detail: string): ReadError {
    return new ReadError(this.options.files[read.file], read.offset, read.size, detail)
  }
}
