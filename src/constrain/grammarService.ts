// What the worker behind constraint.ts does: compiles grammars with xgrammar and walks them token by token. One vocabulary
// per worker; compiled grammars are kept for as long as the worker lives, since clients send the same schema again and
// again. The kind of worker, and how xgrammar is loaded there, is decided by its entry file.
import type * as Xgrammar from '@mlc-ai/web-xgrammar'
import type { ConstraintReply, ConstraintRequest, ConstraintWorkerData } from './grammarMessages.js'
import { Utf8Guard } from './utf8Guard.js'

const MAX_COMPILED = 64

type Compiled = Awaited<ReturnType<Awaited<Compiler>['compileGrammar']>>
type Compiler = ReturnType<typeof Xgrammar.GrammarCompiler.createGrammarCompiler>
type Matcher = Awaited<ReturnType<typeof Xgrammar.GrammarMatcher.createGrammarMatcher>>

export class GrammarService {
  private readonly xgrammar: Promise<typeof Xgrammar>
  private readonly compiler: Compiler
  private readonly guard: Utf8Guard
  private readonly compiled = new Map<string, Compiled>()
  private readonly matchers = new Map<number, { matcher: Matcher; lastToken: number | null }>()
  private nextHandle = 1
  private complaint = ''
  private last: Promise<unknown> = Promise.resolve()

  constructor(
    load: () => typeof Xgrammar | Promise<typeof Xgrammar>,
    private readonly data: ConstraintWorkerData,
    private readonly post: (reply: ConstraintReply & { id: number }, transfer: ArrayBuffer[]) => void,
  ) {
    // xgrammar tells why it refuses a grammar on the console only. Bound at load, so the console is replaced before.
    console.error = console.warn = (text: unknown) => {
      const match = /\[FATAL\].*?: (EBNF.*|.*)$/.exec(String(text))
      if (match !== null) this.complaint = match[1]
    }
    this.guard = new Utf8Guard(data.pieces)
    this.xgrammar = Promise.resolve(load())
    this.compiler = this.createCompiler()
    this.compiler.catch(() => {}) // told with the first request
  }

  /** One request at a time: messages would otherwise interleave at every await. */
  hear(message: ConstraintRequest & { id: number }): void {
    this.last = this.last.then(async () => {
      let reply: ConstraintReply
      this.complaint = ''
      try {
        reply = await this.answer(message)
      } catch (error) {
        const reason = this.complaint || (error instanceof Error ? error.message : String(error))
        reply = { handle: 0, mask: null, error: reason }
      }
      this.post({ id: message.id, ...reply }, reply.mask === null ? [] : [reply.mask.buffer as ArrayBuffer])
    })
  }

  private async createCompiler(): Compiler {
    const { TokenizerInfo, GrammarCompiler } = await this.xgrammar
    const { vocabSize, stopTokenIds } = this.data
    const pieces = [...this.guard.pieces]
    const info = await TokenizerInfo.createTokenizerInfo(pieces, 'byte_level', false, vocabSize, [...stopTokenIds])
    return await GrammarCompiler.createGrammarCompiler(info, false)
  }

  private async compile(grammar: string): Promise<Compiled> {
    const { compiled } = this
    let result = compiled.get(grammar)
    if (result === undefined) result = await (await this.compiler).compileGrammar(grammar, 'root')
    compiled.delete(grammar)
    compiled.set(grammar, result)
    if (compiled.size > MAX_COMPILED) {
      const oldest = compiled.keys().next().value as string
      compiled.get(oldest)?.dispose()
      compiled.delete(oldest)
    }
    return result
  }

  private async answer(request: ConstraintRequest): Promise<ConstraintReply> {
    const { matchers } = this
    if (request.type === 'close') {
      matchers.get(request.handle)?.matcher.dispose()
      matchers.delete(request.handle)
      return { handle: request.handle, mask: null }
    }
    let handle: number
    if (request.type === 'open') {
      handle = this.nextHandle++
      const { GrammarMatcher } = await this.xgrammar
      const matcher = await GrammarMatcher.createGrammarMatcher(await this.compile(request.grammar))
      matchers.set(handle, { matcher, lastToken: null })
    } else handle = request.handle
    const entry = matchers.get(handle)
    if (entry === undefined) throw new Error(`there is no constraint ${handle}`)
    const { matcher } = entry
    for (const token of request.tokens) {
      if (!matcher.acceptToken(token)) throw new Error(`token ${token} does not follow the grammar`)
      entry.lastToken = token
    }
    // After a stop token nothing may follow, and there is no mask to ask for.
    if (matcher.isTerminated()) return { handle, mask: new Uint32Array(Math.ceil(this.data.vocabSize / 32)) }
    const mask = new Uint32Array((await matcher.getNextTokenBitmask()).slice().buffer)
    this.guard.apply(mask, entry.lastToken)
    return { handle, mask }
  }
}
