// Jobs for one text worker, one at a time: short ones before long ones, none overtaken for ever. A job has a deadline, and
// a worker that lets it pass, or whose job nobody wants any more, is ended and the next job gets a fresh one.
import { ClosedError } from '../errors.js'
import type { EncoderData } from './encoder.js'
import type { TextJob, TextReply } from './textService.js'

/** A running worker. It is sent the encoder's data and says `ready`; then it answers jobs in order, one reply each. */
export interface TextWorker {
  post(message: EncoderData | TextJob): void
  /** Replaces the listeners. `ended`: the worker is gone by itself (out of memory, or it could not start). */
  listen(reply: (reply: TextReply | 'ready') => void, ended: (reason: string) => void): void
  /** Whether the worker keeps the process alive: only while it has work. */
  setBusy(busy: boolean): void
  terminate(): void
}

export type StartTextWorker = () => TextWorker | Promise<TextWorker>

export interface LaneJob {
  readonly job: TextJob
  readonly size: number // about how many characters it has to go through
  readonly milliseconds: number // that it may run; the worker's start is not counted
  readonly signal?: AbortSignal
}

export interface LaneOptions {
  /** The worker is ended when it has had nothing to do for so long, to give its memory back. Without it, never. */
  readonly idleMilliseconds?: number
  /** A running job that is not wanted any more is stopped by ending the worker; else its reply is ignored. */
  readonly endsUnwanted: boolean
}

interface Waiting extends LaneJob {
  readonly resolve: (reply: TextReply) => void
  readonly reject: (reason: unknown) => void
  overtaken: number
}

const START_MILLISECONDS = 60_000
const OVERTAKEN_AT_MOST = 16

export class TextLane {
  private readonly queue: Waiting[] = []
  private worker: TextWorker | null = null
  private isRunning = false
  private isClosed = false
  private idleTimer: ReturnType<typeof setTimeout> | undefined

  constructor(
    private readonly start: StartTextWorker,
    private readonly data: EncoderData,
    private readonly options: LaneOptions,
  ) {}

  /** Jobs that run or wait. */
  get length(): number {
    return this.queue.length + (this.isRunning ? 1 : 0)
  }

  /** The worker's reply; `failed` too where the worker died or the job took too long. Rejects when it is aborted. */
  run(job: LaneJob): Promise<TextReply> {
    return new Promise((resolve, reject) => {
      const { signal } = job
      if (this.isClosed) throw new ClosedError('model')
      signal?.throwIfAborted()
      const forget = () => signal?.removeEventListener('abort', abort)
      const waiting: Waiting = {
        ...job,
        overtaken: 0,
        resolve(reply) {
          forget()
          resolve(reply)
        },
        reject(reason) {
          forget()
          reject(reason)
        },
      }
      const abort = () => {
        const at = this.queue.indexOf(waiting)
        if (at >= 0) this.queue.splice(at, 1)
        else if (this.options.endsUnwanted) this.stopRunning?.('is not wanted any more')
        waiting.reject(signal?.reason)
      }
      signal?.addEventListener('abort', abort, { once: true })
      this.queue.push(waiting)
      void this.work()
    })
  }

  /** What waits and runs is given up. */
  close(): void {
    this.isClosed = true
    clearTimeout(this.idleTimer)
    for (const waiting of this.queue.splice(0)) waiting.reject(new ClosedError('model'))
    this.stopRunning?.('the model is closed')
    this.dropWorker()
  }

  private stopRunning: ((reason: string) => void) | null = null

  private async work(): Promise<void> {
    if (this.isRunning) return
    this.isRunning = true
    clearTimeout(this.idleTimer)
    for (let next = this.takeNext(); next !== null; next = this.takeNext()) next.resolve(await this.runNow(next))
    this.isRunning = false
    const { idleMilliseconds } = this.options
    if (idleMilliseconds === undefined || this.worker === null) return
    this.idleTimer = setTimeout(() => this.dropWorker(), idleMilliseconds)
    ;(this.idleTimer as { unref?: () => void }).unref?.()
  }

  /** The shortest; but one that many have overtaken goes first. */
  private takeNext(): Waiting | null {
    if (this.queue.length === 0) return null
    let at = 0
    if (this.queue[0].overtaken < OVERTAKEN_AT_MOST) {
      for (let i = 1; i < this.queue.length; i++) if (this.queue[i].size < this.queue[at].size) at = i
    }
    for (let i = 0; i < at; i++) this.queue[i].overtaken++
    return this.queue.splice(at, 1)[0]
  }

  private async runNow({ job, milliseconds }: LaneJob): Promise<TextReply> {
    if (this.worker === null) {
      try {
        this.worker = await this.start()
      } catch (error) {
        return { failed: `the worker did not start: ${(error as Error).message}` }
      }
      const ready = await this.reply(this.worker, this.data, START_MILLISECONDS, 'the worker did not start')
      if (ready !== 'ready') return ready
    }
    const reply = await this.reply(this.worker, job, milliseconds, `ran for more than ${milliseconds} ms`)
    return reply === 'ready' ? { failed: 'the worker answered out of turn' } : reply
  }

  /** Posts a message; the worker's next reply. A worker that dies or lets the deadline pass is dropped. */
  private reply(
    worker: TextWorker,
    message: EncoderData | TextJob,
    milliseconds: number,
    overrun: string,
  ): Promise<TextReply | 'ready'> {
    worker.setBusy(true)
    return new Promise(resolve => {
      const settle = (reply: TextReply | 'ready') => {
        clearTimeout(timer)
        this.stopRunning = null
        worker.setBusy(false)
        resolve(reply)
      }
      const fail = (reason: string) => {
        this.dropWorker()
        settle({ failed: reason })
      }
      const timer = setTimeout(() => fail(overrun), milliseconds)
      this.stopRunning = fail
      worker.listen(settle, fail)
      try {
        worker.post(message)
      } catch (error) {
        settle({ failed: (error as Error).message }) // a value that cannot be posted: the worker has not seen it
      }
    })
  }

  private dropWorker(): void {
    this.worker?.listen(
      () => undefined,
      () => undefined,
    )
    this.worker?.terminate()
    this.worker = null
  }
}
