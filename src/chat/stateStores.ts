// The stores behind a session's memory, in the order in which they are asked: what is near first. Decides when states go
// where: to a store that others share behind each answer, to a disk of one's own when there is time, or when memory drops
// them.
import { OptionError } from '../base/errors.js'
import type { Context } from '../engine/context.js'
import type { EngineModel } from '../engine/model.js'
import type { KeptState } from '../engine/state.js'
import { StoreTier, type TierCounters, type TierOptions } from '../stores/guardedStore.js'
import type { PrefixStore } from '../stores/prefixStore.js'
import { NAMESPACE } from '../stores/stateNames.js'
import type { StoredBody } from '../stores/stateObjects.js'
import type { StoreWait } from '../stores/storeWait.js'
import { type PrefixEntry, worthStoring } from './prefixCache.js'

export interface StoreOptions {
  /** A folder, a URL (`redis://`, `rediss://`, `s3://`), or a store of one's own. */
  readonly store: string | PrefixStore
  /** Write behind each answer, for others who share the store; or when there is time. Default: 'idle' for a folder. */
  readonly writes?: TierOptions['writes']
  /** The longest time that a slow or dead store may cost an answer. Default 200 ms; 2 s for a folder. */
  readonly budgetMs?: number
  /** What this deployment may see of a store that several use. Default 'moeflux'. */
  readonly namespace?: string
  /** How keys and values are kept: exactly (the default), or in half the bytes and no longer quite the same. */
  readonly keysAndValues?: StoredBody
}

export type StoreChoice = string | PrefixStore | StoreOptions

export interface TierState {
  readonly label: TierOptions['label']
  readonly pending: number // states that wait to be written
  readonly isSkipped: boolean // it did not answer, and is not asked for a while
  readonly counters: Readonly<TierCounters>
}

const IDLE_MS = 3_000
const SHARED_BUDGET_MS = 200
const DISK_BUDGET_MS = 2_000
const LAST_WRITES_MS = 4_000

export class StateStores {
  private readonly tiers: readonly StoreTier[]
  private idleTimer: ReturnType<typeof setTimeout> | null = null

  constructor(choices: readonly StoreChoice[], model: EngineModel, warn: (line: string) => void) {
    this.tiers = choices.map(choice => openTier(choice, model, warn))
    for (const tier of this.tiers) tier.warmUp()
  }

  get isEmpty(): boolean {
    return this.tiers.length === 0
  }

  get states(): readonly TierState[] {
    return this.tiers.map(({ options, pending, isSkipped, counters }) => ({
      label: options.label,
      pending,
      isSkipped,
      counters,
    }))
  }

  /** Brings the context further than `known` where a store has more; returns which one had, and how much. */
  async restore(
    context: Context,
    ids: readonly number[],
    boundaries: readonly number[],
    known: number,
    scope: string,
    wait: StoreWait,
    signal: AbortSignal,
  ): Promise<{ length: number; label: TierOptions['label'] } | null> {
    let best: { length: number; label: TierOptions['label'] } | null = null
    for (const tier of this.tiers) {
      const length = await tier.restore(context, ids, boundaries, best?.length ?? known, scope, wait, signal)
      if (length !== null) best = { length, label: tier.options.label }
    }
    return best
  }

  /** What was noted under each of the keys, or null. Throws nothing that has to do with a store. */
  async recall(
    keys: readonly string[],
    scope: string,
    wait: StoreWait,
    signal: AbortSignal = new AbortController().signal,
  ): Promise<unknown[]> {
    const values: unknown[] = keys.map(() => null)
    for (const tier of this.tiers) {
      const open = [...keys.keys()].filter(i => values[i] === null)
      if (open.length === 0) break
      const found = await tier.recall(
        open.map(i => keys[i]),
        scope,
        wait,
        signal,
      )
      found?.forEach((value, at) => {
        values[open[at]] = value
      })
    }
    return values
  }

  /** Is written when there is time, for others and for later. */
  note(key: string, scope: string, value: unknown): void {
    for (const tier of this.tiers) tier.note(key, scope, value)
  }

  /** All that a request had to wait for before its first token is there, or given up. */
  countWait(wait: StoreWait): void {
    for (const tier of this.tiers) tier.countWait(wait)
  }

  /** An answer is made: what others may go on from. */
  offer(entries: readonly PrefixEntry<KeptState>[]): void {
    for (const tier of this.tiers) if (tier.options.writes === 'answer') writeEntries(tier, entries, true)
  }

  /** A state that fell out of memory, which is released here. */
  evicted({ state, landmark, scope }: PrefixEntry<KeptState>): void {
    const tiers = worthStoring(landmark) ? this.tiers.filter(({ options }) => options.writes === 'idle') : []
    let waiting = 1
    const done = () => {
      if (--waiting === 0) state.release()
    }
    for (const tier of tiers) {
      waiting++
      tier.write(state, scope, true, done)
    }
    done()
  }

  /** After a while without requests, writes what is worth it. Does not keep the process alive. */
  whenIdle(entries: () => readonly PrefixEntry<KeptState>[]): void {
    if (this.idleTimer !== null) clearTimeout(this.idleTimer)
    if (!this.tiers.some(({ options }) => options.writes === 'idle')) return
    this.idleTimer = setTimeout(() => this.writeIdle(entries()), IDLE_MS)
    ;(this.idleTimer as { unref?: () => void }).unref?.()
  }

  /** Writes what is worth it, and waits: for a disk until all is written, for others a moment. */
  async close(entries: readonly PrefixEntry<KeptState>[]): Promise<void> {
    if (this.idleTimer !== null) clearTimeout(this.idleTimer)
    this.writeIdle(entries)
    const closeTier = async (tier: StoreTier) => {
      await tier.settle(tier.options.label === 'disk' ? 2 ** 31 - 1 : LAST_WRITES_MS)
      await tier.close()
    }
    await Promise.all(this.tiers.map(closeTier))
  }

  private writeIdle(entries: readonly PrefixEntry<KeptState>[]): void {
    for (const tier of this.tiers) if (tier.options.writes === 'idle') writeEntries(tier, entries, false)
  }
}

function writeEntries(tier: StoreTier, entries: readonly PrefixEntry<KeptState>[], bounded: boolean): void {
  for (const entry of entries) {
    entry.pins++
    tier.write(entry.state, entry.scope, bounded, () => entry.pins--)
  }
}

function openTier(choice: StoreChoice, model: EngineModel, warn: (line: string) => void): StoreTier {
  const options: StoreOptions = typeof choice === 'object' && 'store' in choice ? choice : { store: choice }
  const { store } = options
  const isFolder = typeof store === 'string' && !/^[a-z][a-z0-9+.-]+:\/\//i.test(store)
  const writes = options.writes ?? (isFolder ? 'idle' : 'answer')
  const label = writes === 'idle' ? 'disk' : 'shared'
  const { namespace = 'moeflux', keysAndValues = 'f32' } = options
  const budgetMs = options.budgetMs ?? (isFolder ? DISK_BUDGET_MS : SHARED_BUDGET_MS)
  if (!NAMESPACE.test(namespace)) throw new OptionError('namespace', namespace, 'up to 64 letters, digits, . _ -')
  if (!(budgetMs > 0)) throw new OptionError('budgetMs', budgetMs, 'a number of milliseconds')
  if (keysAndValues !== 'f32' && keysAndValues !== 'bf16') {
    throw new OptionError('keysAndValues', keysAndValues, 'f32 or bf16')
  }
  const open =
    typeof store === 'string'
      ? async () => (await import('../stores/nodeOpenStore.js')).openStore(store)
      : async () => store
  return new StoreTier(open, model, { label, writes, budgetMs, namespace, body: keysAndValues }, warn)
}

/** Stores, as far as they keep notes. */
export type NoteStores = Pick<StateStores, 'recall' | 'note'>
