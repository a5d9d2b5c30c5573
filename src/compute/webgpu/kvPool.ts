// The memory behind K/V pages: per full-attention layer one buffer [pages][key, value][PAGE_TOKENS][kvHeads * headDim],
// and the table in which a step lists the pages of its runs.
import type { ModelConfig } from '../../model/config.js'
import { kvRowSize } from '../../model/sizes.js'
import { type PageMemory, PagePool } from '../kvPages.js'
import { PAGE_TOKENS } from './attentionShape.js'
import { createChecked } from './gpuMemory.js'
import { GrowingPool } from './growingPool.js'
import { storageBuffer } from './kernel.js'

export class KvPool implements PageMemory {
  readonly pages: PagePool
  readonly layerPageBytes: number
  readonly pageBytes: number // of all layers
  pageTable: GPUBuffer
  readonly #device: GPUDevice
  readonly #pool: GrowingPool
  readonly #rowBytes: number
  #tableGeneration = 0
  #tableWords = 256

  constructor(device: GPUDevice, config: ModelConfig, layers: readonly number[], maxBindingBytes: number) {
    this.#device = device
    this.#rowBytes = kvRowSize(config) * 4
    this.layerPageBytes = 2 * PAGE_TOKENS * this.#rowBytes
    this.pageBytes = this.layerPageBytes * layers.length
    this.#pool = new GrowingPool(device, {
      what: 'keys and values',
      layers,
      cellBytes: this.layerPageBytes,
      initialCells: 8,
      maxBindingBytes,
    })
    this.pages = new PagePool(PAGE_TOKENS, this)
    this.pageTable = storageBuffer(device, this.#tableWords * 4, 'page table')
  }

  get generation(): number {
    return this.#pool.generation + this.#tableGeneration
  }

  get bytes(): number {
    return this.#pool.bytes
  }

  buffer(layer: number): GPUBuffer {
    return this.#pool.buffer(layer)
  }

  /** Makes sure that `count` pages can be allocated, and that a table of `words` fits. Never while a step runs. */
  async reserve(count: number, words: number): Promise<void> {
    await this.#pool.reserve(this.pages.pagesInUse + count)
    if (words > this.#tableWords) {
      const wanted = Math.max(words, this.#tableWords * 2)
      const { usage } = this.pageTable
      const [made] = await createChecked(this.#device, [{ label: 'page table', size: wanted * 4, usage }], 'page table')
      this.pageTable.destroy()
      this.pageTable = made
      this.#tableWords = wanted
      this.#tableGeneration++
    }
  }

  allocate(page: number): void {
    if (page >= this.#pool.cells) throw new Error(`page ${page} of ${this.#pool.cells} was not reserved`)
  }

  copy(from: number, to: number, rows: number): void {
    const size = rows * this.#rowBytes
    this.#pool.copyCell(from, to, [
      { offset: 0, size },
      { offset: PAGE_TOKENS * this.#rowBytes, size },
    ])
  }

  free(): void {}
}
