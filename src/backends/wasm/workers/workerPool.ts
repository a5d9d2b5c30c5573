// The compute workers of one model, as the main thread sees them: start them, give them the job on the board, hear how it
// ended. A worker that dies takes the model with it (its share of a barrier will never come): all others are ended first,
// so that nobody writes into memory any more, then everything pending and everything later fails with DeviceLostError.
import { ClosedError, DeviceLostError, ExpertReadError, MoefluxError } from '../../../base/errors.js'
import type { ComputePool, ComputeThread, WasmHost } from '../platform.js'
import type { AnySetup } from './computeLoop.js'
import type { JobBoard } from './jobBoard.js'
import type { PostedFailure, WorkerReport } from './workerMessages.js'

const STOP_PATIENCE_MS = 2000

interface Pending {
  readonly done: Promise<void>
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

export class WorkerPool implements ComputePool {
  readonly threads: ComputeThread[] = []
  failure: DeviceLostError | null = null
  private readonly ended: Promise<void>[] = []
  private pending: Pending | null = null // the job on the board, or the start of the workers
  private closing: Promise<void> | null = null
  private mayEnd = false // workers were told to
  private ready = 0
  private job = 0 // the last one

  private constructor(
    private readonly board: JobBoard,
    private readonly host: Pick<WasmHost, 'startThread'>,
  ) {}

  /** Resolves when every worker has its kernels. */
  static async start(
    setups: readonly AnySetup[],
    board: JobBoard,
    host: Pick<WasmHost, 'startThread'>,
  ): Promise<WorkerPool> {
    const pool = new WorkerPool(board, host)
    try {
      const started = pool.expect()
      for (const setup of setups) pool.startThread(setup, setups.length)
      await started
    } catch (error) {
      await pool.terminate()
      throw error
    }
    pool.setRef(false)
    return pool
  }

  private startThread(setup: AnySetup, count: number): void {
    let markEnded = () => {}
    this.ended.push(
      new Promise(resolve => {
        markEnded = resolve
      }),
    )
    const thread = this.host.startThread(setup, {
      report: report => this.hear(report, count),
      ended: error => {
        markEnded()
        if (!this.mayEnd) void this.lose(error ? error.message : `worker ${setup.index} ended`, error)
      },
    })
    this.threads.push(thread)
  }

  async run(workers: number, signal?: AbortSignal): Promise<void> {
    if (this.failure) throw this.failure
    if (this.closing) throw new ClosedError('model')
    signal?.throwIfAborted()
    const abort = () => this.board.abort()
    signal?.addEventListener('abort', abort)
    this.threads[0].setRef(true) // one is enough for the process to wait, and every call takes its time
    const done = this.begin(workers)
    try {
      await done
    } catch (error) {
      throw error === ABORTED ? (signal?.reason ?? new ClosedError('model')) : error
    } finally {
      signal?.removeEventListener('abort', abort)
      this.threads[0].setRef(false)
    }
  }

  /**
   * The same, and looks for the job's end in every turn of the event loop, where a message would come too late. The turns keep
   * the process alive.
   */
  runWatched(workers: number): Promise<void> {
    const refused = this.failure ?? (this.closing && new ClosedError('model'))
    if (refused) return Promise.reject(refused)
    const done = this.begin(workers)
    setImmediate(() => this.watch(this.job))
    return done
  }

  private begin(workers: number): Promise<void> {
    const done = this.expect()
    this.board.post(workers)
    this.job = this.board.lastJob
    return done
  }

  /** Looks for the end of a job that is watched, again and again for so long, and for nothing else. */
  spin(ms: number): void {
    if (this.pending === null) return
    const until = performance.now() + ms
    while (this.board.finishedJob !== this.job) if (performance.now() > until) return
    this.settle(pending => pending.resolve())
  }

  /** Lets a running job stop at its next layer, then ends the workers; those that do not come are ended as they are. */
  close(): Promise<void> {
    this.closing ??= this.shutDown()
    return this.closing
  }

  private async shutDown(): Promise<void> {
    this.setRef(true)
    if (this.pending) {
      this.board.abort()
      await soon(this.pending.done.catch(() => {}))
    }
    this.mayEnd = true
    if (!this.pending && !this.failure) {
      this.board.stop()
      await soon(Promise.all(this.ended))
    }
    await this.terminate()
    this.settle(pending => pending.reject(new ClosedError('model')))
  }

  private watch(job: number): void {
    if (this.pending === null || this.job !== job) return // a message was faster
    if (this.board.finishedJob === job) this.settle(pending => pending.resolve())
    else setImmediate(() => this.watch(job))
  }

  private hear(report: WorkerReport, count: number): void {
    if (this.failure) return // it has ended meanwhile, with the others
    if (report.kind === 'ready') {
      if (++this.ready === count) this.settle(pending => pending.resolve())
    } else if (report.kind === 'done') {
      if (report.job === undefined || report.job === this.job) this.settle(pending => pending.resolve())
    } else if (report.kind === 'aborted') this.settle(pending => pending.reject(ABORTED))
    else this.settle(pending => pending.reject(receiveFailure(report.failure)))
  }

  /** Settled by the next `settle`. */
  private expect(): Promise<void> {
    let settle: Omit<Pending, 'done'> | null = null
    const done = new Promise<void>((resolve, reject) => {
      settle = { resolve, reject }
    })
    this.pending = { done, ...(settle as unknown as Omit<Pending, 'done'>) }
    return done
  }

  private settle(how: (pending: Pending) => void): void {
    const { pending } = this
    this.pending = null
    if (pending) how(pending)
  }

  private async lose(detail: string, cause: unknown): Promise<void> {
    if (this.failure) return
    const lost = new DeviceLostError('wasm', `a compute worker died: ${detail}; open the model again`, { cause })
    this.failure = lost
    await this.terminate()
    this.settle(pending => pending.reject(lost))
  }

  private async terminate(): Promise<void> {
    await Promise.all(this.threads.map(thread => thread.terminate()))
  }

  private setRef(on: boolean): void {
    for (const thread of this.threads) thread.setRef(on)
  }
}

const ABORTED = Symbol('aborted')

/** Waits for it, but not for ever. */
async function soon(event: Promise<unknown>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const patience = new Promise<void>(resolve => {
    timer = setTimeout(resolve, STOP_PATIENCE_MS)
  })
  await Promise.race([event, patience])
  clearTimeout(timer)
}

function receiveFailure({ message, read }: PostedFailure): Error {
  if (!read) return new MoefluxError('EVALUATION', message)
  return new ExpertReadError(read.layer, read.expert, read.file, read.offset, read.detail)
}
