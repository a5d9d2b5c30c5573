// Pulls that run beside the answers: each model once, whoever asks. A pull belongs to the server and not to the request that
// began it, so that a page can be closed; it is stopped by name. What ended badly is remembered until it is tried again.
import type { LoadHooks, LoadProgress } from '../modelPool.js'

const MOST = 4
const MOST_TOLD = 16 // of those that have ended

export interface Pull {
  readonly name: string
  readonly startedAt: number // milliseconds since 1970
  readonly state: 'running' | 'done' | 'stopped' | 'failed'
  readonly progress: LoadProgress | null
  readonly problem: string | null // where it failed
}

interface Job {
  pull: Pull
  readonly controller: AbortController
  ended: Promise<Pull>
}

export class Pulls {
  private readonly jobs = new Map<string, Job>()
  private isClosed = false

  constructor(
    private readonly bring: (name: string, hooks: LoadHooks) => Promise<void>,
    /** What clients may know of an error. */
    private readonly describe: (error: unknown) => string,
  ) {}

  get list(): readonly Pull[] {
    return [...this.jobs.values()].map(({ pull }) => pull)
  }

  get(name: string): Pull | null {
    return this.jobs.get(name)?.pull ?? null
  }

  /** Begins one, or finds the one that runs. Null: so many run that no more may. */
  begin(name: string): Pull | null {
    const known = this.get(name)
    if (known?.state === 'running') return known
    const running = this.list.filter(({ state }) => state === 'running').length
    if (running >= MOST || this.isClosed) return null
    this.forget()
    const pull: Pull = { name, startedAt: Date.now(), state: 'running', progress: null, problem: null }
    const job: Job = { pull, controller: new AbortController(), ended: Promise.resolve(pull) }
    job.ended = this.run(job)
    this.jobs.delete(name) // it is the newest
    this.jobs.set(name, job)
    return pull
  }

  /** Those that ended longest ago: anybody can ask for names that nobody has. */
  private forget(): void {
    const ended = this.list.filter(({ state }) => state !== 'running')
    for (const { name } of ended.slice(0, -MOST_TOLD)) this.jobs.delete(name)
  }

  /** False where there is none that runs. */
  stop(name: string): boolean {
    const job = this.jobs.get(name)
    if (job?.pull.state !== 'running') return false
    job.controller.abort(new DOMException('the pull was stopped', 'AbortError'))
    return true
  }

  /** What came of it. */
  async ended(name: string): Promise<Pull | null> {
    return (await this.jobs.get(name)?.ended) ?? null
  }

  async close(): Promise<void> {
    this.isClosed = true
    for (const name of this.jobs.keys()) this.stop(name)
    await Promise.all([...this.jobs.values()].map(({ ended }) => ended))
  }

  private async run(job: Job): Promise<Pull> {
    const { signal } = job.controller
    const change = (fields: Partial<Pull>) => {
      job.pull = { ...job.pull, ...fields }
    }
    try {
      await this.bring(job.pull.name, { signal, onProgress: progress => change({ progress }) })
      change({ state: 'done' })
    } catch (error) {
      if (signal.aborted) change({ state: 'stopped' })
      else change({ state: 'failed', problem: this.describe(error) })
    }
    return job.pull
  }
}
