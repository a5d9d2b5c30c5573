// What an answer may look like as a whole: thinking first, then JSON of a schema, or tool calls, or free text with tool
// calls in it. A small state machine over the special tokens that separate these, with a grammar inside each. Stop
// tokens are allowed only where the answer is complete.
import type { TokenConstraint } from './constraint.js'

export interface AnswerTokens {
  readonly vocabSize: number
  readonly stopTokenIds: readonly number[]
  readonly thinkOpen: number | null
  readonly thinkEnd: number | null
  readonly toolCall: number | null
  readonly toolCallEnd: number | null
  readonly newlines: readonly number[] // tokens that are newlines alone
}

export interface AnswerPlan {
  /** The prompt ended inside thinking: anything goes until it is closed. */
  readonly insideThinking: boolean
  /** The answer may begin with thinking. */
  readonly mayThink: boolean
  /** Opens the grammar of the answer's text; null: text is free. */
  readonly text: (() => Promise<TokenConstraint>) | null
  /** Opens the grammar of one call; null: calls are not constrained (or there are no tools). */
  readonly call: (() => Promise<TokenConstraint>) | null
  /** 'required': the answer is one or more calls. 'allowed': text, calls, or both. 'none': no calls. */
  readonly calls: 'none' | 'allowed' | 'required'
  readonly parallelCalls: boolean
}

type Phase = 'thinking' | 'start' | 'text' | 'free' | 'call' | 'afterCall'

export class AnswerConstraint implements TokenConstraint {
  private phase: Phase
  private inner: TokenConstraint | null = null
  private ready: Promise<void>
  private readonly everything: Uint32Array
  private mayThink: boolean
  private newlinesLeft: number // between thinking and answer, and between calls: a model could go on with them for ever

  constructor(
    private readonly tokens: AnswerTokens,
    private readonly plan: AnswerPlan,
  ) {
    this.everything = new Uint32Array(Math.ceil(tokens.vocabSize / 32)).fill(0xffffffff)
    this.phase = plan.insideThinking && tokens.thinkEnd !== null ? 'thinking' : 'start'
    this.newlinesLeft = this.phase === 'thinking' || plan.mayThink ? 2 : 0
    this.mayThink = plan.mayThink && tokens.thinkOpen !== null && tokens.thinkEnd !== null
    this.ready = Promise.resolve()
  }

  async mask(): Promise<Uint32Array | null> {
    await this.ready
    const { stopTokenIds, thinkOpen, toolCall, newlines } = this.tokens
    switch (this.phase) {
      case 'thinking':
        return without(this.everything, stopTokenIds)
      case 'start': {
        const allowed = this.emptyMask()
        if (this.plan.calls !== 'none' && toolCall !== null) set(allowed, [toolCall])
        if (this.mayThink && thinkOpen !== null) set(allowed, [thinkOpen])
        if (this.newlinesLeft > 0) set(allowed, newlines)
        if (this.plan.calls === 'required') return allowed
        if (this.plan.text === null) return null
        this.inner ??= await this.plan.text()
        return union(allowed, await this.inner.mask())
      }
      case 'text':
        return (await this.inner?.mask()) ?? null
      case 'free':
        return null
      case 'call': {
        const mask = (await this.inner?.mask()) ?? null
        return mask === null ? null : this.callMask(mask)
      }
      case 'afterCall': {
        if (this.plan.text === null && this.plan.calls === 'allowed' && this.plan.parallelCalls) return null
        const allowed = this.emptyMask()
        set(allowed, stopTokenIds)
        if (this.plan.parallelCalls && toolCall !== null) set(allowed, [toolCall])
        if (this.plan.parallelCalls && this.newlinesLeft > 0) set(allowed, newlines)
        return allowed
      }
    }
  }

  /** As long as the tokens stay inside one part of the answer. */
  async maskAfter(tokens: readonly number[]): Promise<Uint32Array | null | undefined> {
    await this.ready
    const { thinkEnd, toolCall, toolCallEnd, stopTokenIds } = this.tokens
    const hasNone = (ids: readonly (number | null)[]) => !tokens.some(token => ids.includes(token))
    switch (this.phase) {
      case 'thinking':
        return hasNone([thinkEnd]) ? without(this.everything, stopTokenIds) : undefined
      case 'free':
        return hasNone([toolCall]) ? null : undefined
      case 'text':
        return hasNone([toolCall]) ? await this.inner?.maskAfter?.(tokens) : undefined
      case 'call': {
        const mask = hasNone([toolCallEnd]) ? await this.inner?.maskAfter?.(tokens) : undefined
        return mask ? this.callMask(mask) : mask
      }
      default:
        return undefined
    }
  }

  accept(token: number): void {
    this.ready = this.ready.then(() => this.advance(token))
    this.ready.catch(() => {})
  }

  close(): void {
    void this.ready.then(() => this.leave()).catch(() => {})
  }

  private async advance(token: number): Promise<void> {
    const { thinkOpen, thinkEnd, toolCall, toolCallEnd, newlines } = this.tokens
    if (this.phase === 'thinking') {
      if (token === thinkEnd) this.phase = 'start'
      return
    }
    if (this.phase === 'start' && this.mayThink && token === thinkOpen) {
      this.mayThink = false
      this.phase = 'thinking'
      this.newlinesLeft = 2
      return
    }
    if (this.phase === 'call') {
      if (token === toolCallEnd) {
        this.leave()
        this.phase = 'afterCall'
        this.newlinesLeft = 1
      } else this.inner?.accept(token)
      return
    }
    if (token === toolCall && toolCall !== null && this.plan.calls !== 'none') {
      this.leave()
      this.inner = this.plan.call === null ? null : await this.plan.call()
      this.phase = this.inner === null ? 'free' : 'call'
      return
    }
    if ((this.phase === 'start' || this.phase === 'afterCall') && this.newlinesLeft > 0 && newlines.includes(token)) {
      this.newlinesLeft--
      return
    }
    if (this.phase === 'start') this.phase = this.plan.text === null ? 'free' : 'text'
    else if (this.phase === 'afterCall') this.phase = 'free'
    if (this.phase === 'text') this.inner?.accept(token)
  }

  /** The grammar of a call is complete where it would let the answer stop: there the block closes. */
  private callMask(mask: Uint32Array): Uint32Array {
    const { stopTokenIds, toolCallEnd } = this.tokens
    const complete = stopTokenIds.some(id => has(mask, id))
    const allowed = without(mask, stopTokenIds)
    if (complete && toolCallEnd !== null) set(allowed, [toolCallEnd])
    return allowed
  }

  private leave(): void {
    this.inner?.close()
    this.inner = null
  }

  private emptyMask(): Uint32Array {
    return new Uint32Array(this.everything.length)
  }
}

const has = (mask: Uint32Array, id: number): boolean => ((mask[id >>> 5] >>> (id & 31)) & 1) === 1

function set(mask: Uint32Array, ids: readonly number[]): void {
  for (const id of ids) mask[id >>> 5] |= 1 << (id & 31)
}

function without(mask: Uint32Array, ids: readonly number[]): Uint32Array {
  const out = mask.slice()
  for (const id of ids) out[id >>> 5] &= ~(1 << (id & 31))
  return out
}

function union(a: Uint32Array, b: Uint32Array | null): Uint32Array | null {
  if (b === null) return null
  return a.map((word, i) => word | b[i])
}
