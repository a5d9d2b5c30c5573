// One grammar and the answers that walk it, token by token. What is found out about the grammar on the way (where bytes
// lead, which tokens may come) is kept for all of them, up to a bound.
import { GrammarError } from '../../base/errors.js'
import type { Program } from './program.js'
import { StackAutomaton } from './stackAutomaton.js'
import { DEAD, type StackSet } from './stackTables.js'
import type { TokenTrie, VocabularyBytes } from './tokenTrie.js'

export interface WalkLimits {
  /** Steps that one token may take: the search for a mask, or the token's own bytes. */
  readonly steps: number
  /** Memory for what is kept of one grammar. */
  readonly bytes: number
}

export const DEFAULT_WALK_LIMITS: WalkLimits = { steps: 2_000_000, bytes: 24 * 2 ** 20 }

export interface Vocabulary {
  readonly tokens: VocabularyBytes
  readonly trie: TokenTrie
}

export class GrammarWalk {
  private automaton: StackAutomaton
  private readonly masks = new Map<StackSet, Uint32Array>()
  private readonly walkers = new Set<Walker>()

  constructor(
    private readonly program: Program,
    private readonly vocabulary: Vocabulary,
    private readonly limits: WalkLimits = DEFAULT_WALK_LIMITS,
  ) {
    this.automaton = this.newAutomaton()
  }

  open(): Walker {
    const walker = new Walker(this, this.automaton.start)
    this.walkers.add(walker)
    return walker
  }

  close(walker: Walker): void {
    this.walkers.delete(walker)
  }

  mayStop(set: StackSet, token: number): boolean {
    return this.vocabulary.tokens.stopTokenIds.includes(token) && this.automaton.isComplete(set)
  }

  /** Where a token leads. */
  after(set: StackSet, token: number): StackSet {
    const { bytes, ends } = this.vocabulary.tokens
    this.automaton.allow(this.limits.steps)
    const from = token === 0 ? 0 : ends[token - 1]
    const to = ends[token]
    let state = from < to ? set : DEAD // a token without bytes is part of no grammar
    for (let i = from; i < to && state !== DEAD; i++) state = this.automaton.step(state, bytes[i])
    if (state === DEAD) throw new GrammarError(`token ${token} does not follow the grammar`)
    return state
  }

  /** One bit per token that may come next; stop tokens where the text may end. */
  mask(set: StackSet): Uint32Array {
    const { automaton, masks } = this
    automaton.allow(this.limits.steps)
    const near = automaton.nearby(set)
    const known = masks.get(near)
    if (known !== undefined) {
      masks.delete(near)
      masks.set(near, known)
      return known.slice()
    }
    const { tokens, trie } = this.vocabulary
    const mask = new Uint32Array(Math.ceil(tokens.vocabSize / 32))
    trie.collect(near, automaton, mask)
    if (automaton.isComplete(near)) for (const id of tokens.stopTokenIds) mask[id >>> 5] |= 1 << (id & 31)
    masks.set(near, mask)
    return mask.slice()
  }

  /** Roughly the memory of what is kept. */
  get bytes(): number {
    return this.automaton.bytes + this.masks.size * this.maskBytes
  }

  /** Forgets the oldest masks, or everything, where it is more than the limits allow. */
  trim(): void {
    const { masks, limits } = this
    while (masks.size * this.maskBytes > limits.bytes / 2) masks.delete(masks.keys().next().value as StackSet)
    if (this.automaton.bytes > limits.bytes) this.forget()
  }

  /** Forgets what was found out; those who walk keep their places. */
  forget(): void {
    const before = this.automaton
    this.automaton = this.newAutomaton()
    this.masks.clear()
    before.allow(Number.POSITIVE_INFINITY)
    for (const walker of this.walkers) walker.place = before.moveTo(this.automaton, walker.place)
  }

  private get maskBytes(): number {
    return Math.ceil(this.vocabulary.tokens.vocabSize / 8) + 100
  }

  private newAutomaton(): StackAutomaton {
    return new StackAutomaton(this.program, this.vocabulary.trie.longest, this.limits.steps)
  }
}

/** An answer's place in a grammar. */
export class Walker {
  private hasStopped = false

  constructor(
    private readonly walk: GrammarWalk,
    public place: StackSet,
  ) {}

  accept(token: number): void {
    if (this.hasStopped) throw new GrammarError('nothing may follow a stop token')
    if (this.walk.mayStop(this.place, token)) this.hasStopped = true
    else this.place = this.walk.after(this.place, token)
  }

  /** Another one, where these tokens lead. Nobody keeps its place when what was found out is forgotten: to be used at once. */
  ahead(tokens: readonly number[]): Walker {
    const other = new Walker(this.walk, this.place)
    other.hasStopped = this.hasStopped
    for (const token of tokens) other.accept(token)
    return other
  }

  /** After a stop token nothing may come. */
  mask(): Uint32Array {
    const mask = this.walk.mask(this.place)
    return this.hasStopped ? mask.fill(0) : mask
  }

  close(): void {
    this.walk.close(this)
  }
}
