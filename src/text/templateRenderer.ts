// Renders templates in a worker with a deadline: a template is a program from a model folder, and a loop in it must not
// freeze or fill the process. One render at a time; a worker that overran is ended and the next render gets a fresh one.
// Which kind of worker (a thread in Node, a Web Worker in a browser) is decided by whoever makes the renderer.
import { TemplateError } from '../errors.js'
import type { Rendering, TemplateVariables } from './templateEngine.js'

export interface TemplateRequest {
  readonly source: string
  readonly sets: readonly TemplateVariables[]
  readonly maxOutput: number
}

export type TemplateReply = 'ready' | readonly Rendering[]

/** A running worker. It says `ready` once, then answers requests in order, one reply each. */
export interface TemplateWorker {
  post(request: TemplateRequest): void
  /** Replaces the listeners. `ended`: the worker is gone by itself (out of memory, or it could not start). */
  listen(reply: (reply: TemplateReply) => void, ended: (reason: string) => void): void
  /** Whether the worker keeps the process alive: only while it has work. */
  setBusy(busy: boolean): void
  terminate(): void
}

export interface TemplateLimits {
  readonly milliseconds: number // for one render; the worker's start is not counted
  readonly characters: number // of output
}

export const defaultTemplateLimits: TemplateLimits = { milliseconds: 5_000, characters: 16 * 2 ** 20 }

const START_MILLISECONDS = 60_000

export class TemplateRenderer {
  private worker: TemplateWorker | null = null
  private last: Promise<unknown> = Promise.resolve()
  private closed = false

  constructor(
    private readonly startWorker: () => TemplateWorker | Promise<TemplateWorker>,
    private readonly limits: TemplateLimits = defaultTemplateLimits,
  ) {}

  /** Renders `source` with each set of variables. A refusal of the template itself is part of the result. */
  render(source: string, sets: readonly TemplateVariables[]): Promise<readonly Rendering[]> {
    const result = this.last.then(() => this.renderNow({ source, sets, maxOutput: this.limits.characters }))
    this.last = result.catch(() => undefined)
    return result
  }

  async close(): Promise<void> {
    this.closed = true
    await this.last
    this.dropWorker()
  }

  private async renderNow(request: TemplateRequest): Promise<readonly Rendering[]> {
    if (this.closed) throw new TemplateError('chat template: the renderer is closed')
    if (this.worker === null) {
      this.worker = await this.startWorker()
      await this.reply(this.worker, START_MILLISECONDS, 'the worker did not start')
    }
    const { worker } = this
    const { milliseconds } = this.limits
    const reply = this.reply(worker, milliseconds, `ran for more than ${milliseconds} ms`)
    worker.post(request)
    const answer = await reply
    if (answer === 'ready') throw new TemplateError('chat template: the worker answered out of turn')
    return answer
  }

  /** The worker's next reply. A worker that dies or lets the deadline pass is dropped. */
  private reply(worker: TemplateWorker, milliseconds: number, overrun: string): Promise<TemplateReply> {
    worker.setBusy(true)
    return new Promise((resolve, reject) => {
      const fail = (reason: string) => {
        clearTimeout(timer)
        this.dropWorker()
        reject(new TemplateError(`chat template: ${reason}`))
      }
      const timer = setTimeout(() => fail(overrun), milliseconds)
      const succeed = (reply: TemplateReply) => {
        clearTimeout(timer)
        worker.setBusy(false)
        resolve(reply)
      }
      worker.listen(succeed, fail)
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
