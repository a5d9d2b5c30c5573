// The state of one sequence in the banks. A step prepares room past the committed length and a fresh recurrent set, runs,
// and then either commits both or drops them; what is committed is never written again, so holding it needs no copy.
import { ClosedError } from '../../base/errors.js'
import {
  type DraftState,
  type HeldState,
  importWhole,
  type KvPart,
  type LayerState,
  type SequenceState,
  type StateImport,
} from '../backend.js'
import { eachPagePart, PAGE_TOKENS, PageTable } from '../kvPages.js'
import type { RecurrentSet, SequenceStore } from './memory/sequenceStore.js'

export class WasmSequence implements SequenceState {
  length = 0
  draft: DraftState | null = null // null: the head for drafts knows nothing of the last token
  private table: PageTable
  private recurrent: RecurrentSet
  private readonly tables
  /** Under which the leader remembers what the last token used; another one forgets it. */
  predictionKey: number
  private released = false

  constructor(
    private readonly store: SequenceStore,
    private readonly newPredictionKey: () => number,
    /** Runs what may grow the memory, when no step would notice. */
    private readonly whenItMayGrow: (work: () => void) => Promise<void>,
  ) {
    this.predictionKey = newPredictionKey()
    this.table = new PageTable(store.pool)
    this.tables = store.newTables()
    this.recurrent = store.zero
    this.recurrent.refs++
  }

  get bytes(): number {
    const { store } = this
    return this.table.pages.length * store.pageBytes + (this.recurrent === store.zero ? 0 : store.setBytes)
  }

  // --- a step --------------------------------------------------------------------------------------------------------

  /** Makes positions [length, length + tokens) writable and gives so many sets for the step to write. */
  prepare(tokens: number, sets: number): RecurrentSet[] {
    this.checkOpen()
    // Page numbers past the committed length may have been given back and come again with other memory.
    const kept = Math.ceil(this.length / PAGE_TOKENS)
    this.tables.written.length = Math.min(this.tables.written.length, kept)
    const taken: RecurrentSet[] = []
    try {
      this.table.reserve(this.length, tokens)
      this.store.writeTables(this.tables, this.table.pages)
      while (taken.length < sets) taken.push(this.store.takeSet())
      return taken
    } catch (error) {
      this.discard(taken)
      throw error
    }
  }

  /** `next`: what was prepared, of which the one at `chosen` holds the state after the tokens. */
  commit(tokens: number, next: readonly RecurrentSet[], chosen: number, draft: DraftState | null): void {
    this.store.releaseSet(this.recurrent)
    for (const [i, set] of next.entries()) if (i !== chosen) this.store.releaseSet(set)
    this.recurrent = next[chosen]
    this.length += tokens
    this.draft = draft
    this.table.trim(this.length)
  }

  discard(next: readonly RecurrentSet[]): void {
    for (const set of next) this.store.releaseSet(set)
    this.table.trim(this.length)
  }

  /** Where kernels find tables of keys and of values, per full layer. */
  get tableAddresses(): [number, number][] {
    const { addresses, capacity } = this.tables
    return addresses.map(address => [address, address + capacity * 4])
  }

  /** Per linear layer the sets that a row reads and writes: the first the committed one, the others those before them. */
  setAddresses(next: readonly RecurrentSet[], row: number): [number, number][] {
    const from = row === 0 ? this.recurrent : next[row - 1]
    return next[row].addresses.map((to, i) => [from.addresses[i], to])
  }

  /** Pages from the one that `position` lies in. */
  pagesFrom(position: number): readonly number[] {
    return this.table.pages.slice(Math.floor(position / PAGE_TOKENS))
  }

  // --- between steps -------------------------------------------------------------------------------------------------

  async clear(): Promise<void> {
    this.checkOpen()
    this.become(0, new PageTable(this.store.pool), this.store.zero, null)
  }

  clearPredictions(): void {
    this.predictionKey = this.newPredictionKey()
  }

  async hold(): Promise<HeldState> {
    this.checkOpen()
    return new WasmHeldState(this.store, this.length, this.table.share(), this.recurrent, this.draft)
  }

  async restore(held: HeldState): Promise<void> {
    this.checkOpen()
    const { length, table, recurrent, draft } = held as WasmHeldState
    this.become(length, table.share(), recurrent, draft)
  }

  async exportLayer(layer: number): Promise<LayerState> {
    this.checkOpen()
    const { store } = this
    const linear = store.linearLayers.indexOf(layer)
    if (linear >= 0) {
      const conv = store.conv(this.recurrent, linear).slice()
      return { kind: 'linear_attention', conv, recurrent: store.recurrent(this.recurrent, linear).slice() }
    }
    const keys = await this.exportRows(layer, 'keys', 0, this.length)
    return { kind: 'full_attention', keys, values: await this.exportRows(layer, 'values', 0, this.length) }
  }

  async exportRows(layer: number, part: KvPart, start: number, rows: number): Promise<Float32Array> {
    this.checkOpen()
    const { store, table } = this
    const full = store.fullLayers.indexOf(layer)
    const row = store.kvDim
    const out = new Float32Array(rows * row)
    eachPagePart(PAGE_TOKENS, start, rows, (page, first, count, done) => {
      out.set(store[part](table.pages[page], full, first + count).subarray(first * row), done * row)
    })
    return out
  }

  async beginImport(length: number): Promise<StateImport> {
    const { store } = this
    const table = new PageTable(store.pool)
    const taken: { set: RecurrentSet | null } = { set: null }
    await this.whenItMayGrow(() => {
      this.checkOpen()
      try {
        table.reserve(0, length)
        taken.set = store.takeSet()
      } catch (error) {
        table.release()
        throw error
      }
    })
    return this.importInto(length, table, taken.set as RecurrentSet)
  }

  importLayers(length: number, layers: Iterable<LayerState>): Promise<void> {
    return importWhole(this, length, layers)
  }

  /** Pages and set are nobody else's: they can be written while steps run. */
  private importInto(length: number, table: PageTable, set: RecurrentSet): StateImport {
    const { store } = this
    const row = store.kvDim
    return {
      rows(layer, part, start, rows) {
        const full = store.fullLayers.indexOf(layer)
        eachPagePart(PAGE_TOKENS, start, rows.length / row, (page, first, count, done) => {
          const given = rows.subarray(done * row, (done + count) * row)
          store[part](table.pages[page], full, first + count).set(given, first * row)
        })
      },
      linear(layer, state) {
        const linear = store.linearLayers.indexOf(layer)
        store.conv(set, linear).set(state.conv)
        store.recurrent(set, linear).set(state.recurrent)
      },
      commit: () => {
        this.checkOpen()
        this.become(length, table, set, null)
        store.releaseSet(set)
      },
      drop() {
        table.release()
        store.releaseSet(set)
      },
    }
  }

  release(): void {
    if (this.released) return
    this.released = true
    this.table.release()
    this.store.releaseSet(this.recurrent)
    this.store.releaseTables(this.tables)
  }

  /** Takes over `table` and a share of the set. */
  private become(length: number, table: PageTable, recurrent: RecurrentSet, draft: DraftState | null): void {
    recurrent.refs++
    this.store.releaseSet(this.recurrent)
    this.table.release()
    this.length = length
    this.table = table
    this.recurrent = recurrent
    this.draft = draft
    this.tables.written = []
    this.clearPredictions()
  }

  private checkOpen(): void {
    if (this.released) throw new ClosedError('sequence')
  }
}

class WasmHeldState implements HeldState {
  private released = false

  constructor(
    private readonly store: SequenceStore,
    readonly length: number,
    readonly table: PageTable,
    readonly recurrent: RecurrentSet,
    readonly draft: DraftState | null,
  ) {
    recurrent.refs++
  }

  get bytes(): number {
    if (this.released) return 0
    return this.table.ownPages * this.store.pageBytes + (this.recurrent.refs === 1 ? this.store.setBytes : 0)
  }

  release(): void {
    if (this.released) return
    this.released = true
    this.table.release()
    this.store.releaseSet(this.recurrent)
  }
}
