// Between a session and the place where states outlive it: writes kept states in the background, reads the longest one
// that begins a prompt. Trouble with the store is a warning, never an error of a request, and a damaged entry is dropped.
import type { KeptState } from '../engine/keptState.js'
import type { EngineModel } from '../engine/model.js'
import { decodeEnvelope, encodeEnvelope } from '../engine/snapshotEnvelope.js'
import { SnapshotError } from '../errors.js'
import type { PrefixEntry } from './prefixCache.js'
import { commonPrefix, matchingPrefixes, type Prefix, prefixKey } from './prefixMatch.js'

/** A place for the states of models: bytes by prefix. What fails throws; nothing half-written is ever read. */
export interface StateStore {
  /** Larger entries are not offered. */
  readonly maxEntryBytes: number
  list(fingerprint: string): Promise<Prefix[]>
  read(fingerprint: string, prefix: Prefix): Promise<Uint8Array | null>
  write(fingerprint: string, prefix: Prefix, bytes: Uint8Array): Promise<void>
  drop(fingerprint: string, prefix: Prefix): Promise<void>
}

export interface StoredState {
  readonly tokens: number[]
  readonly logits: Float32Array | null // [vocab]
  readonly state: Uint8Array // MFLX
}

const IDLE_MS = 3_000
const WORTH_READING = 16 // tokens that a stored state must be ahead of what is in memory

export class StoreWriter {
  private queue: Promise<void> = Promise.resolve()
  private idleTimer: ReturnType<typeof setTimeout> | null = null
  private readonly warned = new Set<string>()

  constructor(
    private readonly model: EngineModel,
    private readonly openStore: () => Promise<StateStore>,
    private readonly warn: (line: string) => void,
  ) {}

  /** The longest stored state that begins `ids` and is well ahead of `known` tokens; always shorter than `ids`. */
  async read(ids: readonly number[], known: number): Promise<StoredState | null> {
    const { fingerprint } = this.model
    try {
      const store = await this.openStore()
      const listed = (await store.list(fingerprint)).filter(
        ({ length }) => length >= known + WORTH_READING && length < ids.length,
      )
      for (const prefix of matchingPrefixes(ids, listed)) {
        const bytes = await store.read(fingerprint, prefix)
        const stored = bytes && (await this.unwrap(store, prefix, bytes))
        if (stored && commonPrefix(stored.tokens, ids) === stored.tokens.length) return stored
      }
    } catch (error) {
      this.warnOnce(`the snapshot store cannot be read: ${(error as Error).message}`)
    }
    return null
  }

  /** A state that the store gave did not load. */
  async drop(tokens: readonly number[], reason: string): Promise<void> {
    this.warn(`a stored state of ${tokens.length} tokens was dropped: ${reason}`)
    const store = await this.openStore()
    await store.drop(this.model.fingerprint, { length: tokens.length, key: prefixKey(tokens) }).catch(() => {})
  }

  /** Writes a state in the background and releases it. */
  write(state: KeptState): void {
    this.enqueue(state, () => state.release())
  }

  /** After a while without requests, writes what is worth it. Does not keep the process alive. */
  whenIdle(entries: () => readonly PrefixEntry<KeptState>[]): void {
    if (this.idleTimer !== null) clearTimeout(this.idleTimer)
    this.idleTimer = setTimeout(() => this.writeAll(entries()), IDLE_MS)
    ;(this.idleTimer as { unref?: () => void }).unref?.()
  }

  /** Writes what is worth it and waits until all is written. */
  async close(entries: readonly PrefixEntry<KeptState>[]): Promise<void> {
    if (this.idleTimer !== null) clearTimeout(this.idleTimer)
    this.writeAll(entries)
    await this.queue
  }

  private writeAll(entries: readonly PrefixEntry<KeptState>[]): void {
    for (const entry of entries) {
      entry.pins++
      this.enqueue(entry.state, () => entry.pins--)
    }
  }

  private enqueue(state: KeptState, done: () => void): void {
    this.queue = this.queue
      .then(() => this.writeNow(state))
      .catch(error => this.warnOnce(`the snapshot store cannot be written: ${(error as Error).message}`))
      .then(done)
  }

  private async writeNow(held: KeptState): Promise<void> {
    const { model } = this
    const { tokens, logits } = held
    const prefix = { length: tokens.length, key: prefixKey(tokens) }
    const store = await this.openStore()
    const listed = await store.list(model.fingerprint)
    if (listed.some(({ length, key }) => length === prefix.length && key === prefix.key)) return
    const context = model.createContext({ maxCheckpoints: 0 })
    try {
      await context.adopt(held)
      if (context.stateSize() > store.maxEntryBytes) return
      const snapshot = await context.saveState()
      const { fingerprint, config } = model
      await store.write(fingerprint, prefix, await encodeEnvelope({ fingerprint, tokens, logits, snapshot }, config))
    } finally {
      await context.close()
    }
  }

  private async unwrap(store: StateStore, prefix: Prefix, bytes: Uint8Array): Promise<StoredState | null> {
    try {
      const { tokens, logits, snapshot } = await decodeEnvelope(bytes, this.model)
      return { tokens: Array.from(tokens), logits, state: snapshot }
    } catch (error) {
      if (!(error instanceof SnapshotError)) throw error
      this.warn(`a stored state of ${prefix.length} tokens was dropped: ${error.message}`)
      await store.drop(this.model.fingerprint, prefix).catch(() => {})
      return null
    }
  }

  private warnOnce(line: string): void {
    if (this.warned.has(line)) return
    this.warned.add(line)
    this.warn(line)
  }
}
