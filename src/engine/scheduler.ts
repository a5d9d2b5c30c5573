// Decides what the backend evaluates next, for all contexts of a model. One step at a time. Prompts are cut at absolute
// multiples of the backend's chunk, so that how a prompt is cut does not depend on the calls it came by. Prompts take
// turns chunk by chunk, with a step of everyone's decodes between two chunks, which are shorter then where a backend says so; decodes
// that are ready together are one step.
// A step is atomic, so when one run of a merged step fails or is aborted, the others are simply tried again.
import type { Backend, DraftRequest, SequenceState, StepOptions, StepOutput, StepRun } from '../backends/backend.js'
import { ClosedError } from '../base/errors.js'
import { joinSignals } from '../base/joinSignals.js'
import { yieldToEventLoop } from '../base/yieldToEventLoop.js'
import type { DraftGovernor } from './draftGovernor.js'
import type { EngineMonitor } from './engineMonitor.js'

export interface EvaluationRequest {
  readonly sequence: SequenceState
  readonly tokens: readonly number[] // at least one
  readonly phase: StepRun['phase']
  readonly output: StepRun['output']
  readonly into?: Float32Array
  /** The tokens are one and guesses after it: all in one step. */
  readonly keep?: StepRun['keep']
  readonly routing?: StepOptions['routing']
  readonly hidden?: boolean
  readonly signal: AbortSignal
  /** Some tokens have been evaluated and are part of the sequence now. */
  readonly onCommit: (tokens: readonly number[], output: StepOutput) => void
}

interface Job {
  readonly request: EvaluationRequest
  done: number // tokens committed
  alone: boolean // was in a merged step that failed
  resolve(): void
  reject(error: unknown): void
}

export interface GuessRequest extends DraftRequest {
  readonly signal: AbortSignal
}

interface GuessJob {
  readonly request: GuessRequest
  resolve(guesses: readonly number[]): void
  reject(error: unknown): void
}

interface Exclusive {
  run(): Promise<void>
  reject(error: unknown): void
}

export class Scheduler {
  private readonly decodes: Job[] = []
  private readonly prompts: Job[] = [] // whose turn it is, first
  private readonly guesses: GuessJob[] = []
  private readonly exclusives: Exclusive[] = []
  private closed = false
  private decodedLast = false
  private othersDecode = false // between the chunks of prompts
  private loop: Promise<void> | null = null

  constructor(
    private readonly backend: Backend,
    private readonly monitor?: EngineMonitor,
    private readonly drafts: DraftGovernor | null = null,
  ) {}

  /** Resolves when all tokens are evaluated; rejects where it stopped, after the last `onCommit`. */
  evaluate(request: EvaluationRequest): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.closed) return reject(new ClosedError('model'))
      const job = { request, done: 0, alone: false, resolve, reject }
      ;(request.phase === 'decode' ? this.decodes : this.prompts).push(job)
      this.start()
    })
  }

  /** Guesses of the model's head, together with whoever else wants some now. None where that is not to be had. */
  draft(request: GuessRequest): Promise<readonly number[]> {
    return new Promise((resolve, reject) => {
      if (this.closed) return reject(new ClosedError('model'))
      this.guesses.push({ request, resolve, reject })
      this.start()
    })
  }

  /** Runs `work` while no step runs. */
  exclusive<T>(work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.closed) return reject(new ClosedError('model'))
      this.exclusives.push({ run: () => work().then(resolve, reject), reject })
      this.start()
    })
  }

  /** Refuses what waits, and resolves when nothing runs any more. The step that runs is stopped by its own signals. */
  async close(): Promise<void> {
    this.closed = true
    const error = new ClosedError('model')
    const waiting = [this.decodes, this.prompts, this.guesses, this.exclusives].flatMap(
      (queue: { reject(error: unknown): void }[]) => queue.splice(0),
    )
    for (const { reject } of waiting) reject(error)
    await this.loop
  }

  private start() {
    this.loop ??= this.run()
  }

  private async run() {
    for (;;) {
      // Whoever got a token in the last step asks for the next one now, so that it is in the coming step.
      await yieldToEventLoop()
      const exclusive = this.exclusives.shift()
      if (exclusive) await exclusive.run()
      if (this.guesses.length > 0) {
        // Then whoever asked joins the coming step.
        await this.guessAll(this.guesses.splice(0, this.backend.chunkTokens))
        continue
      }
      const batch = this.nextBatch()
      if (batch.length > 0) await this.step(batch)
      else if (this.exclusives.length === 0) {
        this.loop = null // in the same turn as the look into the queues: what comes later starts a new loop
        return
      }
    }
  }

  /** Takes the jobs of the next step out of their queues. */
  private nextBatch(): Job[] {
    this.refuseAborted(this.decodes)
    this.refuseAborted(this.prompts)
    const decodesTurn = this.decodes.length > 0 && (this.prompts.length === 0 || !this.decodedLast)
    this.othersDecode = this.decodes.length > 0 || this.decodedLast
    this.decodedLast = decodesTurn
    if (!decodesTurn) return this.prompts.splice(0, 1)
    const suspect = this.decodes.findIndex(job => job.alone)
    if (suspect >= 0) return this.decodes.splice(suspect, 1)
    let room = this.backend.chunkTokens
    const count = this.decodes.findIndex(({ request }) => {
      room -= request.tokens.length
      return room < 0
    })
    return this.decodes.splice(0, count < 0 ? this.decodes.length : Math.max(1, count))
  }

  /** Text does not depend on guesses: when one who asked is gone, the others go on without. */
  private async guessAll(jobs: readonly GuessJob[]) {
    const signals = jobs.map(({ request }) => request.signal)
    const joined = joinSignals(...signals)
    try {
      const outputs = await this.backend.draft?.(
        jobs.map(({ request }) => request),
        { signal: joined.signal },
      )
      jobs.forEach((job, i) => {
        job.resolve(outputs?.[i].guesses ?? [])
      })
    } catch (error) {
      const isGone = signals.some(signal => signal.aborted)
      for (const { request, resolve, reject } of jobs) {
        if (request.signal.aborted) reject(request.signal.reason)
        else if (isGone) resolve([])
        else reject(error)
      }
    } finally {
      joined.release()
    }
  }

  private refuseAborted(jobs: Job[]) {
    for (let i = jobs.length - 1; i >= 0; i--) {
      const { signal } = jobs[i].request
      if (signal.aborted) jobs.splice(i, 1)[0].reject(signal.reason)
    }
  }

  private async step(batch: readonly Job[]) {
    const runs = batch.map(job => this.nextRun(job))
    const signals = batch.map(job => job.request.signal)
    const joined = signals.length > 1 ? joinSignals(...signals) : null
    try {
      const watched = this.monitor?.isWatched === true
      const asked = batch.map(job => job.request.routing)
      const routing = asked.includes('weights') ? 'weights' : watched || asked.includes(true)
      const head = this.drafts?.needsHead
      const outputs = await this.backend.step(runs, { signal: joined?.signal ?? signals[0], routing, head })
      if (watched) this.monitor?.stepDone(runs, outputs)
      batch.forEach((job, i) => {
        this.commit(job, runs[i], outputs[i])
      })
    } catch (error) {
      this.fail(batch, error)
    } finally {
      joined?.release()
    }
  }

  private nextRun({ request, done }: Job): StepRun {
    const { sequence, tokens, phase, output, into, keep, hidden } = request
    if (keep) return { sequence, tokens, phase, output, keep }
    const { chunkTokens, shortChunkTokens = chunkTokens } = this.backend
    const chunk = this.othersDecode ? shortChunkTokens : chunkTokens
    const room = chunk - (sequence.length % chunk)
    const part = tokens.slice(done, done + room)
    const isLast = done + part.length === tokens.length
    return { sequence, tokens: part, phase, output: isLast || output === 'all' ? output : 'none', into, hidden }
  }

  private commit(job: Job, run: StepRun, output: StepOutput) {
    job.done += run.tokens.length
    job.alone = false
    const tokens = output.kept === run.tokens.length ? run.tokens : run.tokens.slice(0, output.kept)
    try {
      job.request.onCommit(tokens, output)
    } catch (error) {
      job.reject(error)
      return
    }
    if (job.done === job.request.tokens.length) job.resolve()
    else this.requeue(this.prompts, job)
  }

  private fail(batch: readonly Job[], error: unknown) {
    const aborted = batch.filter(job => job.request.signal.aborted)
    for (const job of aborted) job.reject(job.request.signal.reason)
    const others = batch.filter(job => !aborted.includes(job))
    if (others.length === 1 && aborted.length === 0) {
      others[0].reject(error)
      return
    }
    for (const job of others) {
      job.alone = aborted.length === 0
      this.requeue(job.request.phase === 'decode' ? this.decodes : this.prompts, job)
    }
  }

  private requeue(queue: Job[], job: Job) {
    if (this.closed) job.reject(new ClosedError('model'))
    else queue.push(job)
  }
}
