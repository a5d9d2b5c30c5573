// The state of one sequence in the banks. A step prepares room past the committed length and a fresh recurrent set, runs,
// and then either commits both or drops them; what is committed is never written again, so holding it needs no copy.
import { ClosedError } from '../../errors.js'
import type { HeldState, LayerState, SequenceState } from '../backend.js'
import { pageTokens } from './kernels.js'
import type { KvPage, PageTables, RecurrentSet, SequenceStore } from './sequenceStore.js'

export interface SequenceHooks {
  clearPredictions(sequence: number): void
}

export class WasmSequence implements SequenceState {
  length = 0
  private pages: KvPage[] = []
  private recurrent: RecurrentSet
  private readonly tables: PageTables = { capacity: 0, addresses: [] }
  private released = false

  constructor(
    readonly id: number,
    private readonly store: SequenceStore,
    private readonly hooks: SequenceHooks,
  ) {
    this.recurrent = store.zero
    this.recurrent.refs++
  }

  get bytes(): number {
    return this.pages.length * this.store.pageBytes + (this.recurrent === this.store.zero ? 0 : this.store.setBytes)
  }

  /** Makes positions [length, length + tokens) writable and gives the set that the step writes. */
  prepare(tokens: number): RecurrentSet {
    this.checkOpen()
    const store = this.store
    const partial = this.length % pageTokens
    const last = Math.floor(this.length / pageTokens)
    if (partial > 0 && this.pages[last].refs > 1) {
      const copy = store.copyPage(this.pages[last], partial)
      store.releasePage(this.pages[last])
      this.setPage(last, copy)
    }
    const needed = Math.ceil((this.length + tokens) / pageTokens)
    store.reserveTables(this.tables, needed, this.pages.length)
    while (this.pages.length < needed) this.setPage(this.pages.length, store.takePage())
    return store.takeSet()
  }

  commit(tokens: number, next: RecurrentSet): void {
    this.store.releaseSet(this.recurrent)
    this.recurrent = next
    this.length += tokens
  }

  discard(next: RecurrentSet): void {
    this.store.releaseSet(next)
  }

  /** Where a step finds the state: page tables of keys and values per full layer, or blocks to read and to write. */
  layerAddresses(next: RecurrentSet): { full: [number, number][]; linear: [number, number][] } {
    const { addresses, capacity } = this.tables
    return {
      full: addresses.map((address) => [address, address + capacity * 4]),
      linear: next.addresses.map((to, i) => [this.recurrent.addresses[i], to]),
    }
  }

  async clear(): Promise<void> {
    this.checkOpen()
    this.become(0, [], this.store.zero)
  }

  clearPredictions(): void {
    this.hooks.clearPredictions(this.id)
  }

  async hold(): Promise<HeldState> {
    this.checkOpen()
    return new WasmHeld(this.store, this.length, this.coveringPages(), this.recurrent)
  }

  async restore(held: HeldState): Promise<void> {
    this.checkOpen()
    if (!(held instanceof WasmHeld) || held.store !== this.store) throw new TypeError('a held state of another backend')
    held.checkOpen()
    this.become(held.length, held.pages, held.recurrent)
  }

  /** Takes shares of the given pages and set in place of its own. */
  private become(length: number, pages: readonly KvPage[], recurrent: RecurrentSet): void {
    const { store } = this
    store.reserveTables(this.tables, pages.length, 0)
    for (const page of pages) page.refs++
    recurrent.refs++
    this.dropState()
    this.pages = [...pages]
    this.recurrent = recurrent
    this.length = length
    pages.forEach((page, i) => {
      store.writeTables(this.tables, i, page)
    })
    this.clearPredictions()
  }

  async exportLayer(layer: number): Promise<LayerState> {
    this.checkOpen()
    const { store } = this
    const bank = store.bankOf(layer)
    const full = store.fullLayers.indexOf(layer)
    if (full >= 0) {
      const keys = new Float32Array(this.length * store.kvDim)
      const values = new Float32Array(this.length * store.kvDim)
      this.coveringPages().forEach((page, i) => {
        const start = i * pageTokens * store.kvDim
        const count = Math.min(pageTokens * store.kvDim, keys.length - start)
        keys.set(bank.floats(page.addresses[full], count), start)
        values.set(bank.floats(page.addresses[full] + pageTokens * store.kvDim * 4, count), start)
      })
      return { kind: 'full_attention', keys, values }
    }
    const address = this.recurrent.addresses[store.linearLayers.indexOf(layer)]
    return {
      kind: 'linear_attention',
      conv: bank.floats(address, store.convFloats).slice(),
      recurrent: bank.floats(address + store.convBytes, store.recurrentFloats).slice(),
    }
  }

  async importLayers(length: number, layers: Iterable<LayerState>): Promise<void> {
    this.checkOpen()
    const { store } = this
    const pages: KvPage[] = []
    const recurrent = store.takeSet()
    try {
      while (pages.length * pageTokens < length) pages.push(store.takePage())
      let full = 0
      let linear = 0
      for (const state of layers) {
        if (state.kind === 'full_attention') this.importKv(state, pages, full++)
        else {
          const bank = store.bankOf(store.linearLayers[linear])
          const address = recurrent.addresses[linear++]
          bank.floats(address, store.convFloats).set(state.conv)
          bank.floats(address + store.convBytes, store.recurrentFloats).set(state.recurrent)
        }
      }
      this.become(length, pages, recurrent)
    } finally {
      for (const page of pages) store.releasePage(page)
      store.releaseSet(recurrent)
    }
  }

  private importKv(state: LayerState & { kind: 'full_attention' }, pages: readonly KvPage[], full: number): void {
    const { kvDim, fullLayers } = this.store
    const bank = this.store.bankOf(fullLayers[full])
    pages.forEach((page, i) => {
      const start = i * pageTokens * kvDim
      const end = Math.min(state.keys.length, start + pageTokens * kvDim)
      bank.floats(page.addresses[full], end - start).set(state.keys.subarray(start, end))
      bank.floats(page.addresses[full] + pageTokens * kvDim * 4, end - start).set(state.values.subarray(start, end))
    })
  }

  release(): void {
    if (this.released) return
    this.clearPredictions()
    this.released = true
    this.dropState()
    this.store.releaseTables(this.tables)
  }

  private coveringPages(): KvPage[] {
    return this.pages.slice(0, Math.ceil(this.length / pageTokens))
  }

  private setPage(index: number, page: KvPage): void {
    this.pages[index] = page
    this.store.writeTables(this.tables, index, page)
  }

  private dropState(): void {
    for (const page of this.pages) this.store.releasePage(page)
    this.store.releaseSet(this.recurrent)
    this.pages = []
  }

  private checkOpen(): void {
    if (this.released) throw new ClosedError('sequence')
  }
}

export class WasmHeld implements HeldState {
  private released = false

  constructor(
    readonly store: SequenceStore,
    readonly length: number,
    readonly pages: readonly KvPage[],
    readonly recurrent: RecurrentSet,
  ) {
    for (const page of pages) page.refs++
    recurrent.refs++
  }

  get bytes(): number {
    if (this.released) return 0
    const own = this.pages.filter((page) => page.refs === 1).length
    return own * this.store.pageBytes + (this.recurrent.refs === 1 ? this.store.setBytes : 0)
  }

  checkOpen(): void {
    if (this.released) throw new ClosedError('held state')
  }

  release(): void {
    if (this.released) return
    this.released = true
    for (const page of this.pages) this.store.releasePage(page)
    this.store.releaseSet(this.recurrent)
  }
}
