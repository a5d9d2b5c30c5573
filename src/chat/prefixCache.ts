// The states that a session keeps to go on from, in memory. Decides which stay when there are more than the limits
// allow: whole conversations go, least recently used first; within the byte budget the states that are least likely to be
// used again go first, those after a system prompt that is in use last. What a state is, the cache does not know.
import { commonPrefix, matchingPrefixes, type Prefix, prefixKey } from './prefixMatch.js'

/** Where in a prompt a state was kept, which tells how useful it will be. */
export type Landmark = 'system' | 'breakpoint' | 'userTurn' | 'promptEnd' | 'prompt' | 'answer'

/** A state, as far as the cache needs to know. */
export interface CachedState {
  readonly tokens: readonly number[]
  readonly bytes: number
  release(): void
}

export interface PrefixEntry<S extends CachedState> extends Prefix {
  readonly state: S
  readonly scope: string // who may use it; '' for all
  landmark: Landmark
  conversation: number
  lastUsed: number
  pins: number // in use now: stays
}

export interface PrefixLimits {
  readonly bytes: number
  readonly conversations: number
}

/** What a conversation that goes on needs is `promptEnd`; the rest serves edits and repetitions. */
const KEEP_LONGER: Readonly<Record<Landmark, number>> = {
  prompt: 0,
  answer: 0,
  userTurn: 1,
  breakpoint: 2,
  promptEnd: 2,
  system: 3,
}

/** A state that a conversation will most likely go on from, be it much later. */
export function worthStoring(landmark: Landmark): boolean {
  return KEEP_LONGER[landmark] >= KEEP_LONGER.promptEnd
}

const IN_USE = 2 // conversations

export class PrefixCache<S extends CachedState> {
  private readonly entries = new Set<PrefixEntry<S>>()
  private clock = 0
  private lastConversation = 0

  constructor(private readonly limits: PrefixLimits) {}

  get size(): number {
    return this.entries.size
  }

  get bytes(): number {
    let bytes = 0
    for (const { state } of this.entries) bytes += state.bytes
    return bytes
  }

  newConversation(): number {
    return ++this.lastConversation
  }

  /** The longest usable state that begins `tokens`, and counts it as used. */
  find(
    tokens: readonly number[],
    usable: (entry: PrefixEntry<S>) => boolean = () => true,
    scope = '',
  ): PrefixEntry<S> | null {
    for (const entry of matchingPrefixes(tokens, this.entries)) {
      if (entry.scope !== scope) continue
      if (commonPrefix(entry.state.tokens, tokens) !== entry.length || !usable(entry)) continue
      entry.lastUsed = ++this.clock
      return entry
    }
    return null
  }

  /** Whether this very prefix is kept; if so it counts as used, now by `conversation`. */
  touch(tokens: readonly number[], length: number, landmark: Landmark, conversation: number, scope = ''): boolean {
    const entry = this.at(tokens, length, scope)
    if (entry === null) return false
    if (KEEP_LONGER[landmark] > KEEP_LONGER[entry.landmark]) entry.landmark = landmark
    entry.conversation = conversation
    entry.lastUsed = ++this.clock
    return true
  }

  /** What is kept of this very prefix. */
  at(tokens: readonly number[], length: number, scope = ''): PrefixEntry<S> | null {
    const key = prefixKey(tokens, length)
    for (const entry of this.entries) {
      if (entry.length !== length || entry.key !== key || entry.scope !== scope) continue
      if (commonPrefix(entry.state.tokens, tokens) >= length) return entry
    }
    return null
  }

  /** Keeps a state; returns the ones that had to go, which the caller must release. */
  add(state: S, landmark: Landmark, conversation: number, scope = ''): PrefixEntry<S>[] {
    const { tokens } = state
    const prefix = { length: tokens.length, key: prefixKey(tokens), scope }
    const entry = { ...prefix, state, landmark, conversation, lastUsed: ++this.clock, pins: 0 }
    // Another request may have kept the same prefix meanwhile.
    if (this.touch(tokens, tokens.length, landmark, conversation, scope) || state.bytes > this.limits.bytes)
      return [entry]
    this.entries.add(entry)
    return this.evict()
  }

  /** Whether it was still there. */
  remove(entry: PrefixEntry<S>): boolean {
    return this.entries.delete(entry)
  }

  /** The best states of each conversation, for keeping elsewhere. */
  worthStoring(): PrefixEntry<S>[] {
    const best = new Map<number, PrefixEntry<S>>()
    const shared: PrefixEntry<S>[] = []
    for (const entry of this.entries) {
      if (entry.landmark === 'system') shared.push(entry)
      else if (worthStoring(entry.landmark)) {
        const other = best.get(entry.conversation)
        if (other === undefined || other.length < entry.length) best.set(entry.conversation, entry)
      }
    }
    return [...shared, ...best.values()]
  }

  /** How many tokens of the prompt any kept state agrees with, though none may be kept at that point. */
  longestCommon(tokens: readonly number[], scope = ''): number {
    let longest = 0
    for (const { state, scope: own } of this.entries) {
      if (own === scope) longest = Math.max(longest, commonPrefix(state.tokens, tokens))
    }
    return longest
  }

  /** Lets half of the states go, because memory is short; returns them, which the caller must release. */
  shed(): PrefixEntry<S>[] {
    const inUse = new Set(this.conversationsByUse().slice(-IN_USE))
    const idle = [...this.entries].filter(entry => entry.pins === 0).sort((a, b) => firstToGo(a, b, inUse))
    const gone = idle.slice(0, Math.ceil(idle.length / 2))
    for (const entry of gone) this.entries.delete(entry)
    return gone
  }

  drain(): PrefixEntry<S>[] {
    const all = [...this.entries]
    this.entries.clear()
    return all
  }

  private evict(): PrefixEntry<S>[] {
    const evicted: PrefixEntry<S>[] = []
    const drop = (entry: PrefixEntry<S>) => {
      this.entries.delete(entry)
      evicted.push(entry)
    }
    const oldestFirst = this.conversationsByUse()
    const tooMany = new Set(oldestFirst.slice(0, Math.max(0, oldestFirst.length - this.limits.conversations)))
    for (const entry of [...this.entries]) if (tooMany.has(entry.conversation) && entry.pins === 0) drop(entry)
    let bytes = this.bytes
    const inUse = new Set(oldestFirst.slice(-IN_USE))
    for (const entry of [...this.entries].sort((a, b) => firstToGo(a, b, inUse))) {
      if (bytes <= this.limits.bytes) break
      if (entry.pins > 0 || entry.lastUsed === this.clock) continue
      bytes -= entry.state.bytes
      drop(entry)
    }
    return evicted
  }

  private conversationsByUse(): number[] {
    const used = new Map<number, number>()
    for (const { conversation, lastUsed } of this.entries) {
      used.set(conversation, Math.max(used.get(conversation) ?? 0, lastUsed))
    }
    return [...used].sort((a, b) => a[1] - b[1]).map(([conversation]) => conversation)
  }
}

/** The system prompts of conversations long past are no better than any other state. */
function firstToGo<S extends CachedState>(a: PrefixEntry<S>, b: PrefixEntry<S>, inUse: ReadonlySet<number>): number {
  const rank = ({ landmark, conversation }: PrefixEntry<S>) =>
    landmark === 'system' && !inUse.has(conversation) ? KEEP_LONGER.promptEnd : KEEP_LONGER[landmark]
  return rank(a) - rank(b) || a.lastUsed - b.lastUsed
}
