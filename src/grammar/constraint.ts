// Constrained decoding: a grammar decides which tokens may come next. Grammars are drafted in one worker and walked in another,
// so that the caller's event loop stays free and a schema that takes its time holds up no answer; while the model
// computes a token's logits, the worker finds its mask. If a worker must be stopped, the answers that were innocent
// go on in the next one from their grammar and the tokens they have accepted.
import { ClosedError, GrammarError, UnsupportedSchemaError } from '../base/errors.js'
import { WorkerFailure, WorkerLine } from '../text/workers/workerQueue.js'
import type { VocabularyBytes } from './automaton/tokenTrie.js'
import { type ConstraintVocabulary, vocabularyBytes } from './automaton/vocabularyBytes.js'
import { sourceText } from './source/grammarSource.js'
import type { GrammarSource } from './source/sourceKinds.js'
import type { GrammarReply, GrammarRequest, GrammarWorker, StartGrammarWorker } from './workers/grammarMessages.js'
import { GrammarStore, type StoredGrammar } from './workers/grammarStore.js'

export interface TokenConstraint {
  /** One bit per token, low bit first: 1 may come next. Null: any token may. */
  mask(): Promise<Uint32Array | null>
  /** What may come behind tokens that may come next; changes nothing. Undefined: it cannot be told before they have come. */
  maskAfter?(tokens: readonly number[]): Promise<Uint32Array | null | undefined>
  /** Tells which token came. A token outside the mask is an error at the next `mask()`. */
  accept(token: number): void
  close(): void
}

export interface ConstraintOptions {
  /** Starts a worker where it is not a thread of Node. */
  readonly startWorker?: StartGrammarWorker
  /** Nothing should ever take so long: steps are bounded. Past this the worker is stopped. */
  readonly timeoutMs?: number
}

const REQUESTS_AHEAD = 64

export class ConstraintCompiler {
  private readonly drafter: WorkerLine<GrammarRequest, GrammarReply>
  private readonly walker: WorkerLine<GrammarRequest, GrammarReply>
  private readonly grammars: GrammarStore
  private readonly milliseconds: number
  private nextHandle = 1
  private vocabularyBytes: Promise<VocabularyBytes> | null = null

  constructor(
    private readonly vocabulary: ConstraintVocabulary,
    options: ConstraintOptions = {},
  ) {
    const start = options.startWorker ?? startNodeWorker
    this.milliseconds = options.timeoutMs ?? 10_000
    this.drafter = new WorkerLine<GrammarRequest, GrammarReply>(() => start(null))
    this.walker = new WorkerLine<GrammarRequest, GrammarReply>(async () => start(await this.vocabularyInBytes()), {
      ahead: REQUESTS_AHEAD,
    })
    this.grammars = new GrammarStore(program => void this.walk({ type: 'forget', program }).catch(() => {}))
  }

  /** Makes a grammar of `source`, or finds it, and stands at its start. `signal` ends the work with it. */
  async open(source: GrammarSource, signal?: AbortSignal): Promise<TokenConstraint> {
    const text = sourceText(source)
    const grammar = await this.grammars.take(text, signal, ended => this.draft(text, ended))
    const constraint = new WalkedConstraint(this, grammar, this.nextHandle++)
    try {
      await constraint.mask()
    } catch (error) {
      constraint.close()
      throw error
    }
    return constraint
  }

  async close(): Promise<void> {
    this.drafter.close()
    this.walker.close()
  }

  walk(request: GrammarRequest): Promise<GrammarReply> {
    return this.ask(this.walker, request, { milliseconds: this.milliseconds })
  }

  private async draft(source: string, signal: AbortSignal) {
    // Work is bounded by size: small ones first, so that one client's large schema makes no other wait.
    const limits = { milliseconds: this.milliseconds, signal, weight: source.length }
    const reply = await this.ask(this.drafter, { type: 'draft', source }, limits)
    if (!('program' in reply)) throw new Error('a draft without a program')
    return reply.program
  }

  private async ask(
    line: WorkerLine<GrammarRequest, GrammarReply>,
    request: GrammarRequest,
    limits: Parameters<typeof line.run>[1],
  ): Promise<GrammarReply> {
    let reply: GrammarReply
    try {
      reply = await line.run(request, limits)
    } catch (error) {
      if (!(error instanceof WorkerFailure)) throw error
      if (error.reason === 'closed') throw new ClosedError('model')
      if (error.reason === 'unstarted') throw new Error(`no grammar worker: ${error.message}`)
      throw new GrammarError(
        `the grammar ${error.reason === 'late' ? error.message : `ended its thread: ${error.message}`}`,
      )
    }
    if ('schemaError' in reply) {
      const { keyword, path, detail } = reply.schemaError
      throw new UnsupportedSchemaError(keyword, path, detail)
    }
    if ('grammarError' in reply) throw new GrammarError(reply.grammarError)
    if ('bug' in reply) throw new Error(`the grammar worker failed: ${reply.bug}`)
    return reply
  }

  private vocabularyInBytes(): Promise<VocabularyBytes> {
    this.vocabularyBytes ??= vocabularyBytes(this.vocabulary)
    return this.vocabularyBytes
  }
}

async function startNodeWorker(vocabulary: VocabularyBytes | null): Promise<GrammarWorker> {
  const { startNodeGrammarWorker } = await import('./workers/nodeStartGrammarWorker.js')
  return startNodeGrammarWorker(vocabulary)
}

class WalkedConstraint implements TokenConstraint {
  private readonly accepted: number[] = []
  private state: Promise<Uint32Array | null>
  private closed = false

  constructor(
    private readonly compiler: ConstraintCompiler,
    private readonly grammar: StoredGrammar,
    private readonly handle: number,
  ) {
    this.state = this.settle(this.begin(null))
  }

  mask(): Promise<Uint32Array | null> {
    return this.state
  }

  async maskAfter(tokens: readonly number[]): Promise<Uint32Array | null | undefined> {
    try {
      await this.state
      const reply = await this.compiler.walk({ type: 'peek', handle: this.handle, tokens })
      return 'mask' in reply ? reply.mask : undefined
    } catch {
      return undefined // whoever takes the next token hears of it
    }
  }

  accept(token: number): void {
    const before = this.state
    this.state = this.settle(before.then(() => this.step(token)))
  }

  close(): void {
    if (this.closed) return
    this.closed = true
    const release = () => {
      this.compiler.walk({ type: 'close', handle: this.handle }).catch(() => {})
      this.grammar.release()
    }
    this.state.then(release, release)
  }

  /** The promise is looked at later, or never: a rejection must not count as unhandled meanwhile. */
  private settle(state: Promise<Uint32Array | null>): Promise<Uint32Array | null> {
    state.catch(() => {})
    return state
  }

  private async step(token: number): Promise<Uint32Array | null> {
    this.accepted.push(token)
    const reply = await this.compiler.walk({ type: 'accept', handle: this.handle, token })
    return 'mask' in reply ? reply.mask : await this.begin(null)
  }

  /** The program's code is sent along only to a worker that does not have it. */
  private async begin(code: StoredGrammar['program'] | null): Promise<Uint32Array | null> {
    const { grammar, handle, accepted } = this
    const reply = await this.compiler.walk({ type: 'open', program: grammar.id, code, handle, tokens: accepted })
    if ('mask' in reply) return reply.mask
    if (code !== null) throw new Error('the grammar worker lost a grammar that it was just given')
    return await this.begin(grammar.program)
  }
}
