// Brings contexts to where a prompt goes on from, and keeps states on the way to the end of it: the prefix cache in
// memory, the store behind it, and prompts that are just being evaluated, seen as one.
import { messageOf, OutOfMemoryError, SnapshotError } from '../base/errors.js'
import type { Context } from '../engine/context.js'
import type { KeptState } from '../engine/state.js'
import type { Landmark, PrefixCache, PrefixEntry } from './prefixCache.js'
import type { Prompt } from './prompt.js'
import { type Prefill, Prefills } from './runningPrefills.js'
import type { StateStores, TierState } from './stateStores.js'

interface Start {
  readonly conversation: number
  readonly logits: Float32Array | null // [vocab], where the whole prompt was kept
}

/** Where a prompt goes on from; `evaluate` must follow. */
export interface Resumed extends Start {
  readonly prefill: Prefill
}

export class StateCache {
  private readonly prefills = new Prefills()
  /** Prompts by where the longest beginning of them was found. */
  readonly found = { memory: 0, disk: 0, shared: 0, nowhere: 0 }

  constructor(
    private readonly cache: PrefixCache<KeptState>,
    private readonly stores: StateStores,
    private readonly warn: (line: string) => void,
  ) {}

  get states(): number {
    return this.cache.size
  }

  get bytes(): number {
    return this.cache.bytes
  }

  get tiers(): readonly TierState[] {
    return this.stores.states
  }

  /** Brings the context, which is empty, to the longest state that begins the prompt. */
  async resume(context: Context, prompt: Prompt, signal: AbortSignal): Promise<Resumed> {
    for (;;) {
      signal.throwIfAborted()
      const entry = this.find(prompt)
      const ahead = this.prefills.ahead(prompt, entry?.length ?? 0)
      if (ahead !== null) {
        await orAborted(ahead, signal)
        continue
      }
      // From here on others may wait for this prompt; nothing may be awaited between the look and this.
      const prefill = this.prefills.start(prompt, entry?.length ?? 0)
      try {
        return { ...(await this.startFrom(context, prompt, entry, signal)), prefill }
      } catch (error) {
        prefill.end()
        throw error
      } finally {
        this.stores.countWait(prompt.wait)
      }
    }
  }

  private async startFrom(
    context: Context,
    prompt: Prompt,
    entry: PrefixEntry<KeptState> | null,
    signal: AbortSignal,
  ): Promise<Start> {
    if (entry) entry.pins++ // others may evict while the store is read
    try {
      const stored = await this.resumeStored(context, prompt, entry?.length ?? 0, signal)
      if (stored !== null) return { conversation: stored, logits: null }
      if (entry === null) {
        this.found.nowhere++
        return { conversation: this.cache.newConversation(), logits: null }
      }
      const start = await this.adopt(context, entry)
      if (start === null) return await this.startFrom(context, prompt, this.find(prompt), signal)
      this.found.memory++
      return start
    } finally {
      if (entry) entry.pins--
    }
  }

  /** A state at the very end of the prompt serves only with its logits: there is nothing left to evaluate for them. */
  private find({ ids, scope }: Prompt): PrefixEntry<KeptState> | null {
    return this.cache.find(ids, ({ length, state }) => length < ids.length || state.logits !== null, scope)
  }

  /** Evaluates the rest of the prompt and keeps states on the way. Returns the logits at its end. */
  async evaluate(
    context: Context,
    prompt: Prompt,
    { conversation, logits, prefill }: Resumed,
    signal: AbortSignal,
    onProgress: (evaluated: number) => void,
  ): Promise<Float32Array> {
    const { ids, landings, scope } = prompt
    try {
      onProgress(context.length) // in here: it is the caller's, and whoever waits for this prompt must hear of its end
      for (const { position, landmark } of landings) {
        const start = context.length
        if (position < start) {
          this.cache.touch(ids, position, landmark, conversation, scope)
          continue
        }
        if (position > start) {
          const last = position === ids.length
          const result = await this.withRoom(() => {
            const from = context.length // further than `start` where a first attempt ran out of memory on the way
            return context.evaluate(ids.slice(from, position), {
              signal,
              logits: last ? 'last' : 'none',
              onProgress: done => onProgress(from + done),
            })
          })
          if (last) logits = result.logits
        }
        await this.keep(context, ids, landmark, conversation, scope)
        prefill.kept(position)
      }
    } finally {
      prefill.end()
    }
    return logits as Float32Array
  }

  /** Keeps the state of a context, which stands after the first tokens of `ids`. */
  async keep(
    context: Context,
    ids: readonly number[],
    landmark: Landmark,
    conversation: number,
    scope: string,
  ): Promise<void> {
    if (context.length === 0 || this.cache.touch(ids, context.length, landmark, conversation, scope)) return
    const kept = await this.withRoom(() => context.keep())
    for (const gone of this.cache.add(kept, landmark, conversation, scope)) this.stores.evicted(gone)
  }

  /**
   * An answer is over: stores that are shared get what others may go on from. Of the conversation that is the furthest that its
   * next turn repeats: `answered`, all tokens so far, where that is so, or the end of the prompt. Where a tool's result repeats
   * more than another question will, which leaves out what was thought, that is both.
   */
  offer({ ids, landings, scope }: Prompt, answered: readonly number[] | null): void {
    const entries = landings
      .filter(({ landmark }) => landmark === 'system' || landmark === 'breakpoint' || landmark === 'promptEnd')
      .filter(({ landmark, position }) => answered === null || landmark !== 'promptEnd' || position < ids.length)
      .map(({ position }) => this.cache.at(ids, position, scope))
    if (answered !== null) entries.push(this.cache.at(answered, answered.length, scope))
    this.stores.offer(entries.filter(entry => entry !== null))
  }

  /** Does `work`; where memory runs out, kept states make room and it is tried again. */
  async withRoom<T>(work: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await work()
      } catch (error) {
        const gone = error instanceof OutOfMemoryError ? this.cache.shed() : []
        if (gone.length === 0) throw error
        for (const { state } of gone) state.release()
        this.warn(`${gone.length} kept states were dropped: ${messageOf(error)}`)
      }
    }
  }

  /** Why no longer state was found, for people; '' where there is nothing to say. */
  explainMiss({ ids, scope }: Prompt, cached: number): string {
    if (cached >= ids.length - 1) return ''
    if (this.cache.size === 0) return 'nothing is kept yet'
    const common = this.cache.longestCommon(ids, scope)
    if (common === 0) return 'no kept state begins like this'
    if (common > cached) return `agrees with kept tokens up to ${common}, the nearest kept state is at ${cached}`
    return ''
  }

  /** A request is over: what is worth it may go to the store when there is time. */
  whenIdle(): void {
    this.stores.whenIdle(() => this.cache.worthStoring())
  }

  async close(): Promise<void> {
    await this.stores.close(this.cache.worthStoring())
    for (const { state } of this.cache.drain()) state.release()
  }

  private async adopt(context: Context, entry: PrefixEntry<KeptState>): Promise<Start | null> {
    try {
      const logits = await this.withRoom(() => context.adopt(entry.state))
      const { landmark, conversation } = entry
      return { conversation: landmark === 'system' ? this.cache.newConversation() : conversation, logits }
    } catch (error) {
      // Layers that disagree on their length are never served: the next best state is tried.
      if (!(error instanceof SnapshotError)) throw error
      if (this.cache.remove(entry)) entry.state.release()
      await context.clear()
      this.warn(`a kept state of ${entry.length} tokens was dropped: ${error.message}`)
      return null
    }
  }

  /** From a store, where that has a longer state than `known`. Returns the new conversation, or null. */
  private async resumeStored(
    context: Context,
    { ids, landings, boundaries, scope, wait }: Prompt,
    known: number,
    signal: AbortSignal,
  ): Promise<number | null> {
    if (this.stores.isEmpty) return null
    const places = [...landings.map(({ position }) => position), ...boundaries]
    const stored = await this.withRoom(() => this.stores.restore(context, ids, places, known, scope, wait, signal))
    if (stored === null) return null
    this.found[stored.label]++
    const conversation = this.cache.newConversation()
    await this.keep(context, ids.slice(0, stored.length), 'promptEnd', conversation, scope)
    return conversation
  }
}

function orAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = () => reject(signal.reason)
    signal.addEventListener('abort', leave, { once: true })
    void work.then(() => {
      signal.removeEventListener('abort', leave)
      resolve()
    })
  })
}
