// The state of one sequence in the banks. A step prepares room past the committed length and a fresh recurrent set, runs,
// and then either commits both or drops them; what is committed is never written again, so holding it needs no copy.
import { ClosedError } from '../../errors.js'
import type { HeldState, LayerState, SequenceState } from '../backend.js'
import { PageTable } from '../kvPages.js'
import { pageTokens } from './kernels.js'
import type { RecurrentSet, SequenceStore } from './sequenceStore.js'

export class WasmSequence implements SequenceState {
  length = 0
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

  /** Makes positions [length, length + tokens) writable and gives the set that the step writes. */
  prepare(tokens: number): RecurrentSet {
    this.checkOpen()
    // Page numbers past the committed length may have been given back and come again with other memory.
    const kept = Math.ceil(this.length / pageTokens)
    this.tables.written.length = Math.min(this.tables.written.length, kept)
    try {
      this.table.reserve(this.length, tokens)
      this.store.writeTables(this.tables, this.table.pages)
      return this.store.takeSet()
    } catch (error) {
      this.table.trim(this.length)
      throw error
    }
  }

  commit(tokens: number, next: RecurrentSet): void {
    this.store.releaseSet(this.recurrent)
    this.recurrent = next
    this.length += tokens
  }

  discard(next: RecurrentSet): void {
    this.store.releaseSet(next)
    this.table.trim(this.length)
  }

  /** Where the kernels of a step find the state: tables of keys and values per full layer, sets to read and to write. */
  addresses(next: RecurrentSet): { full: [number, number][]; linear: [number, number][] } {
    const { addresses, capacity } = this.tables
    return {
      full: addresses.map(address => [address, address + capacity * 4]),
      linear: next.addresses.map((to, i) => [this.recurrent.addresses[i], to]),
    }
  }

  /** Pages from the one that position `length` lies in. */
  get openPages(): readonly number[] {
    return this.table.pages.slice(Math.floor(this.length / pageTokens))
  }

  // --- between steps -------------------------------------------------------------------------------------------------

  async clear(): Promise<void> {
    this.checkOpen()
    this.become(0, new PageTable(this.store.pool), this.store.zero)
  }

  clearPredictions(): void {
    this.predictionKey = this.newPredictionKey()
  }

  async hold(): Promise<HeldState> {
    this.checkOpen()
    return new WasmHeldState(this.store, this.length, this.table.share(), this.recurrent)
  }

  async restore(held: HeldState): Promise<void> {
    this.checkOpen()
    const { length, table, recurrent } = held as WasmHeldState
    this.become(length, table.share(), recurrent)
  }

  async exportLayer(layer: number): Promise<LayerState> {
    this.checkOpen()
    const { store } = this
    const linear = store.linearLayers.indexOf(layer)
    if (linear >= 0) {
      const conv = store.conv(this.recurrent, linear).slice()
      return { kind: 'linear_attention', conv, recurrent: store.recurrent(this.recurrent, linear).slice() }
    }
    const full = store.fullLayers.indexOf(layer)
    const keys = new Float32Array(this.length * store.kvDim)
    const values = new Float32Array(this.length * store.kvDim)
    for (let start = 0; start < this.length; start += pageTokens) {
      const page = this.table.pages[start / pageTokens]
      const rows = Math.min(pageTokens, this.length - start)
      keys.set(store.keys(page, full, rows), start * store.kvDim)
      values.set(store.values(page, full, rows), start * store.kvDim)
    }
    return { kind: 'full_attention', keys, values }
  }

  importLayers(length: number, layers: Iterable<LayerState>): Promise<void> {
    return this.whenItMayGrow(() => this.importNow(length, layers))
  }

  private importNow(length: number, layers: Iterable<LayerState>): void {
    this.checkOpen()
    const { store } = this
    const table = new PageTable(store.pool)
    let recurrent: RecurrentSet | null = null
    try {
      table.reserve(0, length)
      recurrent = store.takeSet()
      let full = 0
      let linear = 0
      for (const state of layers) {
        if (state.kind === 'full_attention') this.importRows(state, length, table, full++)
        else {
          store.conv(recurrent, linear).set(state.conv)
          store.recurrent(recurrent, linear++).set(state.recurrent)
        }
      }
      this.become(length, table, recurrent)
    } catch (error) {
      table.release()
      throw error
    } finally {
      if (recurrent) store.releaseSet(recurrent)
    }
  }

  private importRows(state: LayerState & { kind: 'full_attention' }, length: number, table: PageTable, full: number) {
    const { store } = this
    for (let start = 0; start < length; start += pageTokens) {
      const page = table.pages[start / pageTokens]
      const rows = Math.min(pageTokens, length - start)
      const range = [start * store.kvDim, (start + rows) * store.kvDim] as const
      store.keys(page, full, rows).set(state.keys.subarray(...range))
      store.values(page, full, rows).set(state.values.subarray(...range))
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
  private become(length: number, table: PageTable, recurrent: RecurrentSet): void {
    recurrent.refs++
    this.store.releaseSet(this.recurrent)
    this.table.release()
    this.length = length
    this.table = table
    this.recurrent = recurrent
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
