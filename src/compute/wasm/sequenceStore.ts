// The memory of sequences on the main thread: K/V pages and recurrent sets in the banks, counted by reference, and the
// page tables that kernels read. A page covers `pageTokens` positions of every full-attention layer, a recurrent set the
// conv and delta-net state of every linear layer. Which bank a layer's state lies in is fixed at open, so a kernel finds
// a whole sequence in one memory. Knows nothing of steps: it hands out, shares, copies on write and takes back.
import type { LayerKind, ModelConfig } from '../../model/config.js'
import { alignUp, type Bank } from './bank.js'
import { pageTokens } from './kernels.js'

const FLOAT = 4
const TABLE_ENTRY = 4

/** Bytes of a layer's conv state, padded so that the recurrent state after it is aligned. */
export function convStateBytes(config: ModelConfig): number {
  return alignUp((config.linearConvKernel - 1) * config.linearConvDim * FLOAT, 64)
}

export interface KvPage {
  refs: number
  readonly addresses: readonly number[] // one per full-attention layer: keys [pageTokens, kvDim], then values
}

export interface RecurrentSet {
  refs: number
  readonly addresses: readonly number[] // one per linear layer: conv [3, convDim] padded, then S [valueHeads, valueDim, keyDim]
}

/** Per full-attention layer, in its bank: u32 addresses of the pages' keys [capacity], then of their values [capacity]. */
export interface PageTables {
  capacity: number // pages
  addresses: number[]
}

export class SequenceStore {
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
    this.convBytes = convStateBytes(config)
    this.recurrentFloats = config.linearValueHeads * config.linearValueDim * config.linearKeyDim
    this.pageBytes = this.fullLayers.length * this.layerPageBytes
    this.setBytes = this.linearLayers.length * this.layerSetBytes
    this.zero = this.takeSet()
  }

  bankOf(layer: number): Bank {
    return this.banks[this.stateBank[layer]]
  }

  private get layerPageBytes(): number {
    return 2 * pageTokens * this.kvDim * FLOAT
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

  takePage(): KvPage {
    return { refs: 1, addresses: this.takeBlocks(this.fullLayers, this.layerPageBytes) }
  }

  /** A page of one's own with the first `rows` rows of `page`. */
  copyPage(page: KvPage, rows: number): KvPage {
    const copy = this.takePage()
    const values = pageTokens * this.kvDim * FLOAT
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
    const addresses = this.takeBlocks(this.fullLayers, 2 * capacity * TABLE_ENTRY)
    this.fullLayers.forEach((layer, i) => {
      const bank = this.bankOf(layer)
      for (let half = 0; used > 0 && half < 2; half++) {
        const from = bank.words(tables.addresses[i] + half * tables.capacity * TABLE_ENTRY, used)
        bank.words(addresses[i] + half * capacity * TABLE_ENTRY, used).set(from)
      }
    })
    this.releaseTables(tables)
    tables.capacity = capacity
    tables.addresses = addresses
  }

  writeTables(tables: PageTables, index: number, page: KvPage): void {
    this.fullLayers.forEach((layer, i) => {
      const table = this.bankOf(layer).words(tables.addresses[i], 2 * tables.capacity)
      table[index] = page.addresses[i]
      table[tables.capacity + index] = page.addresses[i] + pageTokens * this.kvDim * FLOAT
    })
  }

  releaseTables(tables: PageTables): void {
    this.giveBlocks(this.fullLayers, tables.addresses, 2 * tables.capacity * TABLE_ENTRY)
    tables.capacity = 0
    tables.addresses = []
  }
}
