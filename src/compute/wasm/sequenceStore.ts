// The memory of sequences on the main thread: K/V pages and recurrent sets in the banks, counted by reference, and the
// page tables that kernels read. A page covers PAGE_TOKENS positions of every full-attention layer, a recurrent set the
// conv and delta-net state of every linear layer. Which bank a layer's state lies in is fixed at open, so a kernel finds
// a whole sequence in one memory. Knows nothing of steps: it hands out, shares, copies on write and takes back.
import type { LayerKind, ModelConfig } from '../../model/config.js'
import type { Bank } from './bank.js'

export const PAGE_TOKENS = 64

const FLOAT = 4
const TABLE_ENTRY = 4

export interface KvPage {
  refs: number
  readonly addresses: readonly number[] // one per full-attention layer: keys [PAGE_TOKENS, kvDim], then values
}

export interface RecurrentSet {
  refs: number
  readonly addresses: readonly number[] // one per linear layer: conv [3, convDim], then S [valueHeads, valueDim, keyDim]
}

/** A page table per full-attention layer: u32 addresses of pages, in the layer's bank. */
export interface PageTables {
  capacity: number // pages
  addresses: number[]
}

export class SequenceStore {
  readonly kvDim: number
  readonly convFloats: number
  readonly recurrentFloats: number
  readonly pageBytes: number // of all layers together
  readonly setBytes: number
  /** The state before the first token. Never written: its memory is as fresh as the system gave it. */
  readonly zero: RecurrentSet
  readonly fullLayers: readonly number[]
  readonly linearLayers: readonly number[]

  constructor(
    config: ModelConfig,
    private readonly banks: readonly Bank[],
    private readonly stateBank: readonly number[], // per layer
  ) {
    const of = (kind: LayerKind) => config.layerKinds.flatMap((k, layer) => (k === kind ? [layer] : []))
    this.fullLayers = of('full_attention')
    this.linearLayers = of('linear_attention')
    this.kvDim = config.numKvHeads * config.headDim
    this.convFloats = (config.linearConvKernel - 1) * config.linearConvDim
    this.recurrentFloats = config.linearValueHeads * config.linearValueDim * config.linearKeyDim
    this.pageBytes = this.fullLayers.length * this.layerPageBytes
    this.setBytes = this.linearLayers.length * this.layerSetBytes
    this.zero = this.takeSet()
  }

  bankOf(layer: number): Bank {
    return this.banks[this.stateBank[layer]]
  }

  private get layerPageBytes(): number {
    return 2 * PAGE_TOKENS * this.kvDim * FLOAT
  }

  private get layerSetBytes(): number {
    return (this.convFloats + this.recurrentFloats) * FLOAT
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

  takePage(): KvPage {
    return { refs: 1, addresses: this.takeBlocks(this.fullLayers, this.layerPageBytes) }
  }

  /** A page of one's own with the first `rows` rows of `page`. */
  copyPage(page: KvPage, rows: number): KvPage {
    const copy = this.takePage()
    const values = PAGE_TOKENS * this.kvDim * FLOAT
    const bytes = rows * this.kvDim * FLOAT
    this.fullLayers.forEach((layer, i) => {
      const bank = this.bankOf(layer)
      for (const offset of [0, values]) {
        bank.bytes(copy.addresses[i] + offset, bytes).set(bank.bytes(page.addresses[i] + offset, bytes))
      }
    })
    return copy
  }

  releasePage(page: KvPage): void {
    if (--page.refs === 0) this.giveBlocks(this.fullLayers, page.addresses, this.layerPageBytes)
  }

  takeSet(): RecurrentSet {
    return { refs: 1, addresses: this.takeBlocks(this.linearLayers, this.layerSetBytes) }
  }

  releaseSet(set: RecurrentSet): void {
    if (--set.refs === 0) this.giveBlocks(this.linearLayers, set.addresses, this.layerSetBytes)
  }

  /** Makes room for `pages` entries, keeping the first `used`. */
  reserveTables(tables: PageTables, pages: number, used: number): void {
    if (pages <= tables.capacity) return
    const capacity = Math.max(16, pages, tables.capacity * 2)
    const addresses = this.takeBlocks(this.fullLayers, capacity * TABLE_ENTRY)
    this.fullLayers.forEach((layer, i) => {
      if (used > 0) this.bankOf(layer).words(addresses[i], used).set(this.bankOf(layer).words(tables.addresses[i], used))
    })
    this.releaseTables(tables)
    tables.capacity = capacity
    tables.addresses = addresses
  }

  writeTables(tables: PageTables, index: number, page: KvPage): void {
    this.fullLayers.forEach((layer, i) => {
      this.bankOf(layer).words(tables.addresses[i] + index * TABLE_ENTRY, 1)[0] = page.addresses[i]
    })
  }

  releaseTables(tables: PageTables): void {
    this.giveBlocks(this.fullLayers, tables.addresses, tables.capacity * TABLE_ENTRY)
    tables.capacity = 0
    tables.addresses = []
  }
}
