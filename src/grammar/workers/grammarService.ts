// What a grammar worker does: drafts programs, or walks them token by token for the answers that are open. Nothing here takes
// longer than its steps allow, and what is kept of the grammars stays within a bound. The kind of worker is decided
// by its entry file.
import { GrammarError, UnsupportedSchemaError } from '../../base/errors.js'
import { GrammarWalk, type Vocabulary, type Walker } from '../automaton/grammarWalk.js'
import { programBuffers } from '../automaton/program.js'
import { TokenTrie, type VocabularyBytes } from '../automaton/tokenTrie.js'
import { draftProgram } from '../source/grammarSource.js'
import type { GrammarReply, GrammarRequest } from './grammarMessages.js'

const KEPT_BYTES = 64 * 2 ** 20 // of all grammars together

export class GrammarService {
  private readonly vocabulary: Vocabulary | null
  private readonly walks = new Map<number, GrammarWalk>() // the one used last is the last
  private readonly walkers = new Map<number, { readonly program: number; readonly walker: Walker }>()

  constructor(
    tokens: VocabularyBytes | null,
    private readonly post: (reply: GrammarReply, transfer: ArrayBuffer[]) => void,
  ) {
    this.vocabulary = tokens === null ? null : { tokens, trie: new TokenTrie(tokens) }
  }

  hear(request: GrammarRequest): void {
    let reply: GrammarReply
    try {
      reply = this.answer(request)
    } catch (error) {
      reply = errorReply(error)
    }
    if ('program' in reply) this.post(reply, programBuffers(reply.program))
    else this.post(reply, 'mask' in reply && reply.mask !== null ? [reply.mask.buffer as ArrayBuffer] : [])
  }

  private answer(request: GrammarRequest): GrammarReply {
    switch (request.type) {
      case 'draft':
        return { program: draftProgram(request.source) }
      case 'open':
        return this.open(request)
      case 'accept': {
        const entry = this.walkers.get(request.handle)
        if (entry === undefined) return { lost: true }
        entry.walker.accept(request.token)
        return this.mask(entry.program, entry.walker)
      }
      case 'peek': {
        const entry = this.walkers.get(request.handle)
        return entry === undefined ? { lost: true } : this.mask(entry.program, entry.walker.ahead(request.tokens))
      }
      case 'close':
        this.walkers.get(request.handle)?.walker.close()
        this.walkers.delete(request.handle)
        return { mask: null }
      case 'forget':
        this.walks.delete(request.program)
        return { mask: null }
    }
  }

  private open({ program, code, handle, tokens }: Extract<GrammarRequest, { type: 'open' }>): GrammarReply {
    let walk = this.walks.get(program)
    if (walk === undefined) {
      if (code === null || this.vocabulary === null) return { lost: true }
      walk = new GrammarWalk(code, this.vocabulary)
      this.walks.set(program, walk)
    }
    const walker = walk.open()
    try {
      for (const token of tokens) walker.accept(token)
    } catch (error) {
      walker.close()
      throw error
    }
    this.walkers.set(handle, { program, walker })
    return this.mask(program, walker)
  }

  private mask(program: number, walker: Walker): GrammarReply {
    const mask = walker.mask()
    this.trim(program)
    return { mask }
  }

  /** What was found out about grammars is forgotten where it is too much, that of the oldest one first. */
  private trim(used: number): void {
    const walk = this.walks.get(used)
    if (walk === undefined) return
    walk.trim()
    this.walks.delete(used)
    this.walks.set(used, walk)
    let bytes = 0
    for (const other of this.walks.values()) bytes += other.bytes
    for (const other of this.walks.values()) {
      if (bytes <= KEPT_BYTES) return
      bytes -= other.bytes
      other.forget()
      bytes += other.bytes
    }
  }
}

function errorReply(error: unknown): GrammarReply {
  if (error instanceof UnsupportedSchemaError) {
    const { keyword, path, detail } = error
    return { schemaError: { keyword, path, detail } }
  }
  if (error instanceof GrammarError) return { grammarError: error.message }
  return { bug: error instanceof Error ? (error.stack ?? error.message) : String(error) }
}
