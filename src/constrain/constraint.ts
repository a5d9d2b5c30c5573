// Constrained decoding: a grammar decides which tokens may come next. Grammars are compiled and matched in a worker, so
// that a hostile one can be stopped by the clock and the caller's event loop stays free; while the model computes a
// token's logits, the worker computes its mask. If the worker must be killed, the constraints that were innocent are
// built again in the next one from their grammar and the tokens they have accepted.
import { ClosedError, GrammarError } from '../errors.js'
import type { ConstraintReply, ConstraintRequest, ConstraintWorkerData } from './grammarMessages.js'

/** What a grammar needs to know of a tokenizer. */
export interface ConstraintVocabulary {
  /** Each token's text in the byte-level alphabet, by id; '' for tokens that must never come (control tokens). */
  readonly pieces: readonly string[]
  readonly vocabSize: number // of the logits; may exceed pieces.length
  readonly stopTokenIds: readonly number[]
}

export interface TokenConstraint {
  /** One bit per token, low bit first: 1 may come next. Null: any token may. */
  mask(): Promise<Uint32Array | null>
  /** Tells which token came. A token outside the mask is an error at the next `mask()`. */
  accept(token: number): void
  close(): void
}

/** A running worker, which answers each message with one of the same id. */
export interface GrammarWorker {
  post(message: ConstraintRequest & { id: number }): void
  /** Called once. `ended`: the worker is gone, by itself or not. */
  listen(reply: (reply: ConstraintReply & { id: number }) => void, ended: (reason: string) => void): void
  /** Whether the worker keeps the process alive. */
  setBusy(busy: boolean): void
  terminate(): void
}

export type StartGrammarWorker = (data: ConstraintWorkerData) => GrammarWorker | Promise<GrammarWorker>

export interface ConstraintOptions {
  /** Starts the worker where it is not a thread of Node. */
  readonly startWorker?: StartGrammarWorker
  readonly compileTimeoutMs?: number
  readonly maxGrammarBytes?: number
}

const ACCEPT_TIMEOUT_MS = 5_000

interface Pending {
  readonly resolve: (reply: ConstraintReply) => void
  readonly reject: (error: Error) => void
  readonly timer: ReturnType<typeof setTimeout>
}

export class ConstraintCompiler {
  private worker: StartedWorker | null = null
  private readonly pending = new Map<number, Pending>()
  private nextId = 1
  private closed = false

  constructor(
    private readonly vocabulary: ConstraintVocabulary,
    private readonly options: ConstraintOptions = {},
  ) {}

  /** Compiles a grammar (EBNF, rule `root`) and stands at its start. */
  async open(grammar: string): Promise<TokenConstraint> {
    const limit = this.options.maxGrammarBytes ?? 400_000
    if (grammar.length > limit)
      throw new GrammarError(`the grammar has ${grammar.length} characters, ${limit} are allowed`)
    const constraint = new WorkerConstraint(this, grammar)
    await constraint.mask()
    return constraint
  }

  /** Starts compiling in the worker of now. `generation` tells a constraint whether its worker is still that one. */
  get generation(): unknown {
    return this.worker
  }

  async request(request: ConstraintRequest): Promise<ConstraintReply> {
    if (this.closed) throw new ClosedError('constraint compiler')
    const worker = (this.worker ??= this.start())
    const id = this.nextId++
    const timeoutMs = request.type === 'open' ? (this.options.compileTimeoutMs ?? 10_000) : ACCEPT_TIMEOUT_MS
    return await new Promise<ConstraintReply>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.pending.delete(id)
        this.discard(worker, `a grammar took longer than ${timeoutMs} ms`)
        reject(new GrammarError(`the grammar takes longer than ${timeoutMs} ms`))
      }, timeoutMs)
      ;(timer as { unref?: () => void }).unref?.()
      this.pending.set(id, { resolve, reject, timer })
      worker.use(running => {
        running.setBusy(true)
        running.post({ id, ...request })
      })
    })
  }

  async close(): Promise<void> {
    this.closed = true
    if (this.worker !== null) this.discard(this.worker, 'closed')
  }

  private start(): StartedWorker {
    const start = this.options.startWorker ?? startNodeWorker
    const worker: StartedWorker = new StartedWorker(start({ ...this.vocabulary }), reason =>
      this.discard(worker, reason),
    )
    worker.use(running => {
      running.listen(
        reply => {
          const waiting = this.pending.get(reply.id)
          if (waiting === undefined) return
          this.pending.delete(reply.id)
          clearTimeout(waiting.timer)
          if (this.pending.size === 0) running.setBusy(false)
          waiting.resolve(reply)
          // An error may have aborted the WASM module: nothing that lives in it is trusted any more.
          if (reply.error !== undefined) this.discard(worker, reply.error)
        },
        reason => this.discard(worker, reason),
      )
    })
    return worker
  }

  /** Ends a worker. Requests that were waiting behind the guilty one learn that they must ask again. */
  private discard(worker: StartedWorker, reason: string): void {
    if (this.worker !== worker) return
    this.worker = null
    for (const [id, waiting] of this.pending) {
      this.pending.delete(id)
      clearTimeout(waiting.timer)
      waiting.reject(new WorkerGoneError(reason))
    }
    worker.use(running => running.terminate())
  }
}

/** A worker that is there, or will be in a moment: what is asked of it is done in order. */
class StartedWorker {
  private ready: Promise<GrammarWorker | null>

  constructor(starting: GrammarWorker | Promise<GrammarWorker>, failed: (reason: string) => void) {
    this.ready = Promise.resolve(starting).catch(error => {
      failed(String((error as Error).message))
      return null
    })
  }

  use(work: (worker: GrammarWorker) => void): void {
    this.ready = this.ready.then(worker => {
      if (worker !== null) work(worker)
      return worker
    })
  }
}

async function startNodeWorker(data: ConstraintWorkerData): Promise<GrammarWorker> {
  const { startNodeGrammarWorker } = await import('./nodeGrammarWorker.js')
  return startNodeGrammarWorker(data)
}

/** Internal: the worker went away through no fault of this request. */
class WorkerGoneError extends GrammarError {}

class WorkerConstraint implements TokenConstraint {
  private readonly accepted: number[] = []
  private handle: number | null = null
  private owner: unknown = null
  private state: Promise<Uint32Array | null>
  private closed = false

  constructor(
    private readonly compiler: ConstraintCompiler,
    private readonly grammar: string,
  ) {
    this.state = this.settle(this.build(2))
  }

  mask(): Promise<Uint32Array | null> {
    return this.state
  }

  accept(token: number): void {
    const before = this.state
    this.accepted.push(token)
    this.state = this.settle(before.then(() => this.step(token)))
  }

  close(): void {
    if (this.closed) return
    this.closed = true
    void this.state.then(() => this.release()).catch(() => {})
  }

  /** The promise is looked at later, or never: a rejection must not count as unhandled meanwhile. */
  private settle(state: Promise<Uint32Array | null>): Promise<Uint32Array | null> {
    state.catch(() => {})
    return state
  }

  private async step(token: number): Promise<Uint32Array | null> {
    if (this.owner !== this.compiler.generation || this.handle === null) return await this.build(2)
    try {
      return this.take(await this.compiler.request({ type: 'accept', handle: this.handle, tokens: [token] }))
    } catch (error) {
      if (error instanceof WorkerGoneError) return await this.build(2)
      throw error
    }
  }

  private async build(attempts: number): Promise<Uint32Array | null> {
    try {
      const reply = this.compiler.request({ type: 'open', grammar: this.grammar, tokens: [...this.accepted] })
      this.owner = this.compiler.generation
      return this.take(await reply)
    } catch (error) {
      if (error instanceof WorkerGoneError && attempts > 1) return await this.build(attempts - 1)
      throw error
    }
  }

  private take(reply: ConstraintReply): Uint32Array | null {
    if (reply.error !== undefined) throw new GrammarError(reply.error)
    this.handle = reply.handle
    return reply.mask
  }

  private async release(): Promise<void> {
    if (this.handle !== null && this.owner === this.compiler.generation && this.owner !== null) {
      await this.compiler.request({ type: 'close', handle: this.handle })
    }
  }
}
