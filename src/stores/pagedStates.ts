// States in a store, as pages and recurrent parts: which objects a state has, how only new ones are
// written, and how they become the state of a context again. A few pages at a time are in memory,
// however long a state is. Time limits are those of guardedStore.ts.
import type { StateImport } from '../backends/backend.js'
import { SnapshotError } from '../base/errors.js'
import type { Context } from '../engine/context.js'
import type { EngineModel } from '../engine/model.js'
import type { KeptState } from '../engine/state.js'
import type { PrefixStore } from './prefixStore.js'
import { STORED_PAGE_TOKENS, StateNames } from './stateNames.js'
import {
  checkObject,
  encodeObject,
  type ObjectShape,
  objectBytes,
  type StoredBody,
  unpackObject,
} from './stateObjects.js'
import { untilAborted } from './timeLimit.js'

interface Stored {
  readonly name: string
  readonly shape: ObjectShape
}

export interface Written {
  readonly objects: number
  readonly bytes: number
  readonly shared: number // objects that were there already
}

/** An object that a state needs has gone, or is damaged. The state is of no use any more. */
export class BrokenStateError extends Error {
  constructor(
    readonly object: string,
    readonly damage: SnapshotError | null, // null: it is gone
  ) {
    super(damage?.message ?? 'a page of it has gone')
  }
}

const PAGES_AT_ONCE = 4 // that are asked for together
const READS_AT_ONCE = 2 // so that one group travels while another is checked
const WRITES_AT_ONCE = 2
const KNOWN_MS = 600_000 // a page that was there a while ago need not be asked for
const KNOWN_PAGES = 65_536

export class PagedStates {
  /** Pages that were seen in the store, and when. */
  private readonly known = new Map<string, number>()

  constructor(
    readonly store: PrefixStore,
    private readonly model: EngineModel,
    private readonly namespace: string,
    private readonly body: StoredBody,
  ) {}

  names(tokens: readonly number[], scope: string): StateNames {
    const { fingerprint, expertsPerToken } = this.model
    return new StateNames(this.namespace, { fingerprint, expertsPerToken, body: this.body, scope }, tokens)
  }

  /** Bytes of all objects of a state. */
  bytesOf(length: number): number {
    const { config } = this.model
    const page = objectBytes(config, pageShape(0), this.body)
    return Math.floor(length / STORED_PAGE_TOKENS) * page + objectBytes(config, stateShape(length), this.body)
  }

  /** Those of `lengths` that a state is stored at, in their order. */
  async find(names: StateNames, lengths: readonly number[], signal: AbortSignal): Promise<number[]> {
    const wanted = await Promise.all(lengths.map(length => names.state(length)))
    const found = await this.store.has(wanted, signal)
    return lengths.filter((_, i) => found[i])
  }

  /**
   * The context becomes the stored state; it is as it was where that fails. Returns the bytes that were read. All reading is
   * done inside `read`, which has the engine's permission by then and may give up.
   */
  async restore(
    context: Context,
    names: StateNames,
    tokens: readonly number[],
    read: (work: (limit: AbortSignal) => Promise<void>) => Promise<void>,
  ): Promise<number> {
    let bytes = 0
    const groups = await this.groupsOf(names, tokens.length)
    const fill = async (into: StateImport, limit: AbortSignal) => {
      for await (const objects of workAhead(groups, READS_AT_ONCE, group => this.fetch(group, limit))) {
        for (const object of objects) {
          limit.throwIfAborted()
          object.unpackInto(into)
          bytes += object.bytes
        }
      }
    }
    await context.importState(tokens, into => read(limit => fill(into, limit)))
    return bytes
  }

  /** Writes what the store does not have. The part that makes a state of the pages comes last. */
  async save(
    kept: KeptState,
    scope: string,
    limited: <T>(work: (signal: AbortSignal) => Promise<T>) => Promise<T>,
  ): Promise<Written> {
    const { tokens } = kept
    const names = this.names(tokens, scope)
    const pages = Math.floor(tokens.length / STORED_PAGE_TOKENS)
    const last = { name: await names.state(tokens.length), shape: stateShape(tokens.length) }
    const all = await Promise.all(
      Array.from({ length: pages }, async (_, i) => ({ name: await names.page(i + 1), shape: pageShape(i) })),
    )
    const unknown = all.filter(({ name }) => !this.isKnown(name))
    const [isThere, ...found] = await limited(signal =>
      this.store.has([last.name, ...unknown.map(({ name }) => name)], signal),
    )
    unknown.forEach(({ name }, i) => {
      if (found[i]) this.remember(name)
    })
    if (isThere) return { objects: 0, bytes: 0, shared: pages + 1 }
    const missing = unknown.filter((_, i) => !found[i])
    let bytes = 0
    const context = this.model.createContext({ maxCheckpoints: 0 })
    try {
      await context.adopt(kept)
      await context.readState(async state => {
        const put = async ({ name, shape }: Stored) => {
          const object = await encodeObject(name, state, this.model.config, shape, this.body)
          await limited(signal => this.store.put(name, object, signal))
          bytes += object.length
          if (!shape.recurrent) this.remember(name)
        }
        for await (const _ of workAhead(missing, WRITES_AT_ONCE, put));
        await put(last)
      })
    } finally {
      await context.close()
    }
    return { objects: missing.length + 1, bytes, shared: pages - missing.length }
  }

  /** All objects of a state, in the order and the groups in which they are asked for. */
  private async groupsOf(names: StateNames, length: number): Promise<Stored[][]> {
    const pages = Math.floor(length / STORED_PAGE_TOKENS)
    const groups: Stored[][] = [[{ name: await names.state(length), shape: stateShape(length) }]]
    for (let first = 0; first < pages; first += PAGES_AT_ONCE) {
      const numbers = Array.from({ length: Math.min(PAGES_AT_ONCE, pages - first) }, (_, i) => first + i)
      groups.push(await Promise.all(numbers.map(async i => ({ name: await names.page(i + 1), shape: pageShape(i) }))))
    }
    return groups
  }

  private async fetch(group: readonly Stored[], limit: AbortSignal) {
    const names = group.map(({ name }) => name)
    const found = await untilAborted(this.store.get(names, limit), limit)
    return await Promise.all(group.map((wanted, i) => this.checked(wanted, found[i])))
  }

  /** What came for a name, if it is what the name says. */
  private async checked(
    { name, shape }: Stored,
    object: Uint8Array | null,
  ): Promise<{ bytes: number; unpackInto(into: StateImport): void }> {
    if (object === null) throw this.broken(name, null)
    const { config } = this.model
    const orBroken = (error: unknown): never => {
      throw error instanceof SnapshotError ? this.broken(name, error) : error
    }
    await checkObject(object, name, config, shape, this.body).catch(orBroken)
    if (!shape.recurrent) this.remember(name)
    return {
      bytes: object.length,
      unpackInto: into => {
        try {
          unpackObject(object, name, into, config, shape, this.body)
        } catch (error) {
          orBroken(error)
        }
      },
    }
  }

  private broken(name: string, damage: SnapshotError | null): BrokenStateError {
    this.known.delete(name)
    return new BrokenStateError(name, damage)
  }

  private isKnown(name: string): boolean {
    const seen = this.known.get(name)
    return seen !== undefined && performance.now() - seen < KNOWN_MS
  }

  private remember(name: string): void {
    this.known.delete(name)
    this.known.set(name, performance.now())
    if (this.known.size > KNOWN_PAGES) this.known.delete(this.known.keys().next().value as string)
  }
}

function pageShape(page: number): ObjectShape {
  return { start: page * STORED_PAGE_TOKENS, rows: STORED_PAGE_TOKENS, recurrent: false }
}

function stateShape(length: number): ObjectShape {
  const rows = length % STORED_PAGE_TOKENS
  return { start: length - rows, rows, recurrent: true }
}

/**
 * Results in the order of their items, of at most `most` items that are begun at once: the next one
 * travels while the caller works on the last. Ends when all that was begun has ended, also if the
 * caller leaves early.
 */
export async function* workAhead<T, R>(
  items: readonly T[],
  most: number,
  begin: (item: T) => Promise<R>,
): AsyncGenerator<R, void, undefined> {
  const begun: Promise<R>[] = []
  let next = 0
  const fill = () => {
    while (begun.length < most && next < items.length) {
      const work = begin(items[next++])
      work.catch(() => {}) // is told when its turn comes
      begun.push(work)
    }
  }
  try {
    for (fill(); begun.length > 0; ) {
      const result = await begun[0]
      begun.shift()
      fill()
      yield result
    }
  } finally {
    await Promise.allSettled(begun)
  }
}
