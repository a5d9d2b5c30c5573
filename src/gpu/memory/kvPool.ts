// The memory behind K/V pages: per full-attention layer one buffer [pages][key, value][PAGE_TOKENS][kvHeads * headDim],
// and the table in which a step lists the pages of its runs.
import type { PlannedState } from '../../backends/backend.js'
import { PAGE_TOKENS, type PageMemory, PagePool } from '../../backends/kvPages.js'
import type { ModelConfig } from '../../model/config.js'
import { kvLayers, kvRowSize } from '../../model/sizes.js'
import { createChecked } from '../device/gpuMemory.js'
import { storageBuffer } from '../device/kernel.js'
import { GrowingPool, type GrowingPoolOptions, growingBytes } from './growingPool.js'

const TABLE_WORDS = 256

/** Pages for the tokens that are planned: each sequence has one that is not full, and may have to copy it. */
export function plannedPages({ tokens, sequences }: PlannedState): number {
  return Math.ceil(tokens / PAGE_TOKENS) + 2 * sequences
}

/** What the pool takes when it is made for so many pages. */
export function kvPoolBytes(config: ModelConfig, pages: number, maxBindingBytes: number): number {
  const options = poolOptions(config, kvLayers(config), maxBindingBytes)
  return growingBytes(options, pages) + 4 * Math.max(TABLE_WORDS, pages)
}

function poolOptions(config: ModelConfig, layers: readonly number[], maxBindingBytes: number): GrowingPoolOptions {
  const cellBytes = 2 * PAGE_TOKENS * kvRowSize(config) * 4
  return { what: 'keys and values', layers, cellBytes, initialCells: 8, maxBindingBytes }
}

export class KvPool implements PageMemory {
  readonly pages: PagePool
  readonly layerPageBytes: number
  readonly pageBytes: number // of all layers
  pageTable: GPUBuffer
  private readonly device: GPUDevice
  private readonly pool: GrowingPool
  private readonly rowBytes: number
  private tableGeneration = 0
  private tableWords = TABLE_WORDS

  constructor(device: GPUDevice, config: ModelConfig, layers: readonly number[], maxBindingBytes: number) {
    this.device = device
    this.rowBytes = kvRowSize(config) * 4
    const options = poolOptions(config, layers, maxBindingBytes)
    this.layerPageBytes = options.cellBytes
    this.pageBytes = this.layerPageBytes * layers.length
    this.pool = new GrowingPool(device, options)
    this.pages = new PagePool(PAGE_TOKENS, this)
    this.pageTable = storageBuffer(device, this.tableWords * 4, 'page table')
  }

  get generation(): number {
    return this.pool.generation + this.tableGeneration
  }

  get bytes(): number {
    return this.pool.bytes
  }

  /** More than these no kernel sees. */
  get mostPages(): number {
    return this.pool.maxCells
  }

  /** What to ask for memory when the GPU refuses it. */
  set makeRoom(ask: (bytes: number) => Promise<boolean>) {
    this.pool.makeRoom = ask
  }

  buffer(layer: number): GPUBuffer {
    return this.pool.buffer(layer)
  }

  /** Makes sure that `count` pages can be allocated, and that a table of `words` fits. Never while a step runs. */
  async reserve(count: number, words: number): Promise<void> {
    await this.pool.reserve(this.pages.pagesInUse + count)
    if (words > this.tableWords) {
      const wanted = Math.max(words, this.tableWords * 2)
      const { usage } = this.pageTable
      const [made] = await createChecked(this.device, [{ label: 'page table', size: wanted * 4, usage }], 'page table')
      this.pageTable.destroy()
      this.pageTable = made
      this.tableWords = wanted
      this.tableGeneration++
    }
  }

  /** A page, where nothing has to grow for it and a table of `words` fits; null: none. */
  takeSpare(words: number): number | null {
    if (words > this.tableWords || this.pages.pagesInUse >= this.pool.cells) return null
    return this.pages.allocate()
  }

  allocate(page: number): void {
    if (page >= this.pool.cells) throw new Error(`page ${page} of ${this.pool.cells} was not reserved`)
  }

  copy(from: number, to: number, rows: number): void {
    const size = rows * this.rowBytes
    this.pool.copyCell(from, to, [
      { offset: 0, size },
      { offset: PAGE_TOKENS * this.rowBytes, size },
    ])
  }

  free(): void {}
}
