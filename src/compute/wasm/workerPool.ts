// The compute workers of one model, as the main thread sees them: start them, give them the job on the board, hear how it
// ended. A worker that dies takes the model with it (its share of a barrier will never come): everything pending and
// everything later fails with DeviceLostError.
import { ClosedError, DeviceLostError, ExpertReadError, MoefluxError } from '../../errors.js'
import type { ComputeSetup, PostedFailure, WorkerReport } from './computeLoop.js'
import type { ComputePool, ComputeThread, WasmHost } from './host.js'
import type { JobBoard } from './jobBoard.js'

const STOP_PATIENCE_MS = 2000

interface Pending {
  resolve(): void
  reject(error: unknown): void
}

export class WorkerPool implements ComputePool {
  readonly threads: ComputeThread[] = []
  private readonly ended: Promise<void>[] = []
  private pending: Pending | null = null
  private lost: Error | null = null
  private closing: Promise<void> | null = null
  private ready = 0

  private constructor(
    private readonly board: JobBoard,
    private readonly host: Pick<WasmHost, 'startThread'>,
  ) {}

  /** Resolves when every worker has its kernels. */
  static async start(
    setups: readonly ComputeSetup[],
    board: JobBoard,
    host: Pick<WasmHost, 'startThread'>,
  ): Promise<WorkerPool> {
    const pool = new WorkerPool(board, host)
    try {
      await new Promise<void>((resolve, reject) => {
        pool.pending = { resolve, reject }
        for (const setup of setups) pool.startThread(setup, setups.length)
      })
    } catch (error) {
      await pool.terminate()
      throw error
    }
    pool.setRef(false)
    return pool
  }

  private startThread(setup: ComputeSetup, count: number): void {
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
        if (!this.closing) this.lose(error ? error.message : `worker ${setup.index} ended`, error)
      },
    })
    this.threads.push(thread)
  }

  run(workers: number, signal?: AbortSignal): Promise<void> {
    if (this.lost) return Promise.reject(this.lost)
    if (this.closing) return Promise.reject(new ClosedError('model'))
    if (signal?.aborted) return Promise.reject(signal.reason)
    const abort = () => this.board.abort()
    signal?.addEventListener('abort', abort)
    const done = new Promise<void>((resolve, reject) => {
      this.pending = { resolve, reject }
    })
    this.setRef(true)
    this.board.post(workers)
    return done
      .catch(error => {
        throw error === ABORTED ? (signal?.reason ?? new ClosedError('model')) : error
      })
      .finally(() => {
        signal?.removeEventListener('abort', abort)
        this.setRef(false)
      })
  }

  /** Lets a running job stop at its next layer, then ends the workers. */
  close(): Promise<void> {
    this.closing ??= (async () => {
      this.board.abort()
      this.setRef(true)
      const pending = this.pending
      if (pending) {
        await new Promise<void>(resolve => {
          this.pending = {
            resolve: () => {
              pending.resolve()
              resolve()
            },
            reject: error => {
              pending.reject(error)
              resolve()
            },
          }
        })
      }
      this.board.stop()
      let timer: ReturnType<typeof setTimeout> | undefined
      const patience = new Promise<void>(resolve => {
        timer = setTimeout(resolve, STOP_PATIENCE_MS)
      })
      await Promise.race([Promise.all(this.ended), patience])
      clearTimeout(timer)
      await this.terminate()
    })()
    return this.closing
  }

  private hear(report: WorkerReport, count: number): void {
    if (report.kind === 'ready') {
      if (++this.ready === count) this.settle(pending => pending.resolve())
    } else if (report.kind === 'done') this.settle(pending => pending.resolve())
    else if (report.kind === 'aborted') this.settle(pending => pending.reject(ABORTED))
    else this.settle(pending => pending.reject(receiveFailure(report.failure)))
  }

  private settle(how: (pending: Pending) => void): void {
    const { pending } = this
    this.pending = null
    if (pending) how(pending)
  }

  private lose(detail: string, cause: unknown): void {
    if (this.lost) return
    const lost = new DeviceLostError('wasm', `a compute worker died: ${detail}; open the model again`, { cause })
    this.lost = lost
    this.settle(pending => pending.reject(lost))
    void this.terminate()
  }

  private async terminate(): Promise<void> {
    await Promise.all(this.threads.map(thread => thread.terminate()))
  }

  private setRef(on: boolean): void {
    for (const thread of this.threads) thread.setRef(on)
  }
}

const ABORTED = Symbol('aborted')

function receiveFailure({ message, read }: PostedFailure): Error {
  if (!read) return new MoefluxError('EVALUATION', message)
  return new ExpertReadError(read.layer, read.expert, read.file, read.offset, read.detail)
}
