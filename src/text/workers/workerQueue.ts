import { messageOf } from '../../base/errors.js'
// A worker that can be stopped, and the line of jobs in front of it. What runs there (a model's template, a client's grammar) may
// never come to an end, or fill its memory: a job that passes its deadline ends with its worker, and the next job gets a
// fresh one. Deadlines count a job's own work, not its wait in the line nor the worker's start. Jobs that a dying worker
// had not begun are given to the next one. Which kind of worker it is (a thread in Node, a Web Worker in a tab) is
// decided by whoever starts it.

/** A running worker. It says `ready` once, then answers requests in order, one reply each. */
export interface LineWorker<Request, Reply> {
  post(request: Request): void
  /** Replaces the listeners. `ended`: the worker is gone by itself (out of memory, or it could not start). */
  listen(reply: (reply: 'ready' | Reply) => void, ended: (reason: string) => void): void
  /** Whether the worker keeps the process alive: only while it has work. */
  setBusy(busy: boolean): void
  terminate(): void
}

export interface JobLimits {
  readonly milliseconds: number
  /** Takes the job out of the line, or stops it with its worker where it runs. */
  readonly signal?: AbortSignal
  /** Lighter jobs go first, as long as a heavier one has not been overtaken too often. Default 0. */
  readonly weight?: number
}

export interface LineOptions {
  /** So many requests may lie at the worker at once, which saves its waiting for the next one. Default 1. */
  readonly ahead?: number
  /** A running job that is not wanted any more is done to its end, and its reply ignored: for short jobs. */
  readonly finishesUnwanted?: boolean
  /** The worker is ended when it has had nothing to do for so long, to give its memory back. Without it, never. */
  readonly idleMilliseconds?: number
}

export class WorkerFailure extends Error {
  constructor(
    readonly reason: 'late' | 'ended' | 'unstarted' | 'closed',
    message: string,
  ) {
    super(message)
  }
}

interface Job<Request, Reply> {
  readonly request: Request
  readonly limits: JobLimits
  readonly resolve: (reply: Reply) => void
  readonly reject: (error: unknown) => void
  overtaken: number
}

const OVERTAKEN_AT_MOST = 16
const START_MILLISECONDS = 60_000
const LATE_TIMER_MILLISECONDS = 250 // a timer later than this slept with the process, and the reply may be there

export class WorkerLine<Request, Reply> {
  private waiting: Job<Request, Reply>[] = []
  private posted: Job<Request, Reply>[] = [] // the first one runs
  private worker: LineWorker<Request, Reply> | null = null
  private isStarting = false
  private isClosed = false
  private timer: ReturnType<typeof setTimeout> | undefined
  private idleTimer: ReturnType<typeof setTimeout> | undefined

  constructor(
    private readonly start: () => LineWorker<Request, Reply> | Promise<LineWorker<Request, Reply>>,
    private readonly options: LineOptions = {},
  ) {}

  run(request: Request, limits: JobLimits): Promise<Reply> {
    const { signal } = limits
    return new Promise<Reply>((resolve, reject) => {
      if (this.isClosed) throw new WorkerFailure('closed', 'closed')
      signal?.throwIfAborted()
      const leave = () => this.abandon(job, signal?.reason)
      const job: Job<Request, Reply> = {
        request,
        limits,
        resolve: reply => {
          signal?.removeEventListener('abort', leave)
          resolve(reply)
        },
        reject: error => {
          signal?.removeEventListener('abort', leave)
          reject(error)
        },
        overtaken: 0,
      }
      signal?.addEventListener('abort', leave)
      this.lineUp(job)
      this.pump()
    })
  }

  close(): void {
    this.isClosed = true
    const jobs = [...this.posted, ...this.waiting]
    this.posted = []
    this.waiting = []
    this.drop()
    for (const job of jobs) job.reject(new WorkerFailure('closed', 'closed'))
  }

  /** Behind the last one that is as light, or that too many have overtaken. */
  private lineUp(job: Job<Request, Reply>): void {
    const { weight = 0 } = job.limits
    const mayPass = ({ limits, overtaken }: Job<Request, Reply>) =>
      (limits.weight ?? 0) > weight && overtaken < OVERTAKEN_AT_MOST
    const place = this.waiting.findLastIndex(other => !mayPass(other)) + 1
    for (const other of this.waiting.slice(place)) other.overtaken++
    this.waiting.splice(place, 0, job)
  }

  private pump(): void {
    if (this.isClosed || this.isStarting || this.waiting.length === 0) return
    if (this.worker === null) {
      void this.begin()
      return
    }
    const { ahead = 1 } = this.options
    while (this.posted.length < ahead && this.waiting.length > 0) {
      clearTimeout(this.idleTimer)
      const job = this.waiting.shift()!
      this.posted.push(job)
      if (this.posted.length === 1) this.watch()
      try {
        this.worker.setBusy(true)
        this.worker.post(job.request)
      } catch (error) {
        this.posted.pop() // what cannot be sent
        if (this.posted.length === 0) this.rest()
        job.reject(error)
      }
    }
  }

  private async begin(): Promise<void> {
    this.isStarting = true
    try {
      const worker = await this.start()
      this.worker = worker
      if (this.isClosed) return this.drop()
      await new Promise<void>((resolve, reject) => {
        const fail = (reason: string) => reject(new WorkerFailure('unstarted', reason))
        this.timer = setTimeout(() => fail('the worker did not start'), START_MILLISECONDS)
        worker.setBusy(true)
        worker.listen(() => resolve(), fail)
      })
      clearTimeout(this.timer)
      if (this.isClosed) return
      this.rest()
      worker.listen(
        reply => this.answer(reply as Reply),
        reason => this.fail(new WorkerFailure('ended', reason)),
      )
    } catch (error) {
      // Whoever is first in the line learns of it; the next one is another try.
      this.drop()
      const failure = error instanceof WorkerFailure ? error : new WorkerFailure('unstarted', messageOf(error))
      this.waiting.shift()?.reject(failure)
    } finally {
      this.isStarting = false
    }
    this.pump()
  }

  private answer(reply: Reply): void {
    const job = this.posted.shift()
    clearTimeout(this.timer)
    if (this.posted.length > 0) this.watch()
    else this.rest()
    job?.resolve(reply)
    this.pump()
  }

  /** Nothing is to be done: the process may end. */
  private rest(): void {
    clearTimeout(this.timer)
    this.worker?.setBusy(false)
    const { idleMilliseconds } = this.options
    if (idleMilliseconds === undefined) return
    clearTimeout(this.idleTimer)
    this.idleTimer = setTimeout(() => this.drop(), idleMilliseconds)
    ;(this.idleTimer as { unref?: () => void }).unref?.()
  }

  private watch(extraMilliseconds?: number): void {
    const { milliseconds } = this.posted[0].limits
    const wait = extraMilliseconds ?? milliseconds
    const since = performance.now()
    this.timer = setTimeout(() => {
      const late = performance.now() - since - wait
      if (late > LATE_TIMER_MILLISECONDS && extraMilliseconds === undefined) this.watch(LATE_TIMER_MILLISECONDS)
      else this.fail(new WorkerFailure('late', `took longer than ${milliseconds} ms`))
    }, wait)
  }

  /** The job that runs is to blame; the others are done by the next worker. */
  private fail(error: unknown): void {
    const [guilty, ...innocent] = this.posted
    this.posted = []
    this.waiting = [...innocent, ...this.waiting]
    this.drop()
    guilty?.reject(error)
    this.pump()
  }

  private abandon(job: Job<Request, Reply>, reason: unknown): void {
    if (this.posted[0] === job && !this.options.finishesUnwanted) this.fail(reason)
    else {
      this.waiting = this.waiting.filter(other => other !== job)
      job.reject(reason) // one that is posted already is answered to nobody
    }
  }

  private drop(): void {
    clearTimeout(this.timer)
    clearTimeout(this.idleTimer)
    this.worker?.listen(
      () => undefined,
      () => undefined,
    )
    this.worker?.terminate()
    this.worker = null
  }
}
