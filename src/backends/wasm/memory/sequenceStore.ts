// The memory behind sequences, on the main thread: K/V pages, recurrent sets and the page tables that kernels read, all
// in the banks' arenas. A page covers `PAGE_TOKENS` positions of every full-attention layer, a recurrent set the conv and
// delta-net state of every linear layer. Which bank a layer's state lies in is fixed at open, so a kernel finds a whole
// sequence in one memory. Knows nothing of steps: it hands out, copies and takes back.
import type { ModelConfig } from '../../../model/config.js'
import type { LayerKind } from '../../../model/layers.js'
import { allLayerKinds, convStateSize, kvRowSize, recurrentStateSize } from '../../../model/sizes.js'
import { PAGE_TOKENS, type PageMemory, PagePool } from '../../kvPages.js'
import { alignUp, type Bank } from './bank.js'

const FLOAT = 4
const TABLE_ENTRY = 4

/** Bytes of a layer's conv state, padded so that the recurrent state after it is aligned. */
export function convStateBytes(config: ModelConfig): number {
  return alignUp(convStateSize(config) * FLOAT, 64)
}

export interface RecurrentSet {
  refs: number
  readonly addresses: readonly number[] // one per linear layer: conv [3, convDim] padded, then S [valueHeads, valueDim, keyDim]
}

/** Per full-attention layer, in its bank: u32 addresses of the pages' keys [capacity], then of their values [capacity]. */
export interface AddressTables {
  capacity: number // pages
  addresses: readonly number[]
  written: number[] // pages whose addresses are in the tables
}

export class SequenceStore implements PageMemory {
  readonly pool = new PagePool(PAGE_TOKENS, this)
  readonly kvDim: number
  readonly convFloats: number
  readonly convBytes: number
  readonly recurrentFloats: number
  readonly pageBytes: number // of all layers together
  readonly setBytes: number
  /** The state before the first token. Never written: its memory is as fresh as the system gave it. */
  readonly zero: RecurrentSet
  readonly fullLayers: readonly number[]
  readonly linearLayers: readonly number[]
  private readonly pages = new Map<number, readonly number[]>() // page -> address of its keys, per full layer
  private readonly valuesOffset: number // of a page's values from its keys

  constructor(
    config: ModelConfig,
    private readonly banks: readonly Bank[],
    private readonly stateBank: readonly number[], // per layer
  ) {
    const of = (kind: LayerKind) => allLayerKinds(config).flatMap((k, layer) => (k === kind ? [layer] : []))
    this.fullLayers = of('full_attention')
    this.linearLayers = of('linear_attention')
    this.kvDim = kvRowSize(config)
    this.convFloats = convStateSize(config)
    this.convBytes = convStateBytes(config)
    this.recurrentFloats = recurrentStateSize(config)
    this.valuesOffset = PAGE_TOKENS * this.kvDim * FLOAT
    this.pageBytes = this.fullLayers.length * this.layerPageBytes
    this.setBytes = this.linearLayers.length * this.layerSetBytes
    this.zero = this.takeSet()
  }

  bankOf(layer: number): Bank {
    return this.banks[this.stateBank[layer]]
  }

  // --- pages ---------------------------------------------------------------------------------------------------------

  allocate(page: number): void {
    this.pages.set(page, this.takeBlocks(this.fullLayers, this.layerPageBytes))
  }

  copy(from: number, to: number, rows: number): void {
    for (let full = 0; full < this.fullLayers.length; full++) {
      this.keys(to, full, rows).set(this.keys(from, full, rows))
      this.values(to, full, rows).set(this.values(from, full, rows))
    }
  }

  free(page: number): void {
    this.giveBlocks(this.fullLayers, this.addressesOf(page), this.layerPageBytes)
    this.pages.delete(page)
  }

  addressesOf(page: number): readonly number[] {
    return this.pages.get(page) as readonly number[]
  }

  /** The first rows of a page in the n-th full-attention layer: [rows, kvDim]. */
  keys(page: number, full: number, rows: number): Float32Array {
    return this.bankOf(this.fullLayers[full]).floats(this.addressesOf(page)[full], rows * this.kvDim)
  }

  values(page: number, full: number, rows: number): Float32Array {
    const address = this.addressesOf(page)[full] + this.valuesOffset
    return this.bankOf(this.fullLayers[full]).floats(address, rows * this.kvDim)
  }

  // --- recurrent state -----------------------------------------------------------------------------------------------

  takeSet(): RecurrentSet {
    return { refs: 1, addresses: this.takeBlocks(this.linearLayers, this.layerSetBytes) }
  }

  releaseSet(set: RecurrentSet): void {
    if (--set.refs === 0) this.giveBlocks(this.linearLayers, set.addresses, this.layerSetBytes)
  }

  conv(set: RecurrentSet, linear: number): Float32Array {
    return this.bankOf(this.linearLayers[linear]).floats(set.addresses[linear], this.convFloats)
  }

  recurrent(set: RecurrentSet, linear: number): Float32Array {
    const bank = this.bankOf(this.linearLayers[linear])
    return bank.floats(set.addresses[linear] + this.convBytes, this.recurrentFloats)
  }

  // --- page tables ---------------------------------------------------------------------------------------------------

  newTables(): AddressTables {
    return { capacity: 0, addresses: [], written: [] }
  }

  /** Makes the tables list these pages. */
  writeTables(tables: AddressTables, pages: readonly number[]): void {
    if (pages.length > tables.capacity) {
      const capacity = Math.max(16, pages.length, tables.capacity * 2)
      const addresses = this.takeBlocks(this.fullLayers, 2 * capacity * TABLE_ENTRY)
      this.releaseTables(tables)
      tables.capacity = capacity
      tables.addresses = addresses
    }
    const { capacity, written } = tables
    for (let i = 0; i < pages.length; i++) {
      if (written[i] === pages[i]) continue
      this.fullLayers.forEach((layer, full) => {
        const table = this.bankOf(layer).words(tables.addresses[full], 2 * capacity)
        table[i] = this.addressesOf(pages[i])[full]
        table[capacity + i] = table[i] + this.valuesOffset
      })
      written[i] = pages[i]
    }
  }

  releaseTables(tables: AddressTables): void {
    this.giveBlocks(this.fullLayers, tables.addresses, 2 * tables.capacity * TABLE_ENTRY)
    tables.capacity = 0
    tables.addresses = []
    tables.written = []
  }

  // --- blocks --------------------------------------------------------------------------------------------------------

  private get layerPageBytes(): number {
    return 2 * this.valuesOffset
  }

  private get layerSetBytes(): number {
    return this.convBytes + this.recurrentFloats * FLOAT
  }

  /** One block per layer, or none at all: a refused allocation gives the others back. */
  private takeBlocks(layers: readonly number[], bytes: number): number[] {
    const addresses: number[] = []
    try {
      for (const layer of layers) addresses.push(this.bankOf(layer).allocate(bytes))
    } catch (error) {
      this.giveBlocks(layers, addresses, bytes)
      throw error
    }
    return addresses
  }

  private giveBlocks(layers: readonly number[], addresses: readonly number[], bytes: number): void {
    addresses.forEach((address, i) => {
      this.bankOf(layers[i]).release(address, bytes)
    })
  }
}
