// The state of one sequence as JavaScript arrays. Recurrent state is never changed in place: a step makes new arrays and
// commits by taking them, so holding a state is keeping a reference. K/V rows live in shared pages.
import type { ModelConfig } from '../../model/config.js'
import { convStateSize, kvLayers, kvRowSize, recurrentStateSize } from '../../model/sizes.js'
import {
  type DraftState,
  type HeldState,
  importWhole,
  type KvPart,
  type LayerState,
  type LinearLayerState,
  type SequenceState,
  type StateImport,
} from '../backend.js'
import { eachPagePart, PAGE_TOKENS, type PageMemory, PagePool, PageTable } from '../kvPages.js'

export type LinearState = LinearLayerState

/** One page: rows of every full-attention layer, by layer number. */
interface Page {
  readonly keys: Map<number, Float32Array> // [PAGE_TOKENS, kvHeads * headDim]
  readonly values: Map<number, Float32Array>
}

/** All K/V pages of a model. */
export class KvMemory implements PageMemory {
  readonly pool = new PagePool(PAGE_TOKENS, this)
  readonly pageBytes: number
  private readonly pages = new Map<number, Page>()
  private readonly rowSize: number
  private readonly layers: readonly number[] // full-attention layers, and the head for drafts

  constructor(config: ModelConfig) {
    this.rowSize = kvRowSize(config)
    this.layers = kvLayers(config)
    this.pageBytes = this.layers.length * 2 * PAGE_TOKENS * this.rowSize * 4
  }

  allocate(page: number): void {
    const rows = () => new Map(this.layers.map(layer => [layer, new Float32Array(PAGE_TOKENS * this.rowSize)]))
    this.pages.set(page, { keys: rows(), values: rows() })
  }

  copy(from: number, to: number, rows: number): void {
    const [source, target] = [this.page(from), this.page(to)]
    for (const layer of this.layers) {
      target.keys.get(layer)?.set((source.keys.get(layer) as Float32Array).subarray(0, rows * this.rowSize))
      target.values.get(layer)?.set((source.values.get(layer) as Float32Array).subarray(0, rows * this.rowSize))
    }
  }

  free(page: number): void {
    this.pages.delete(page)
  }

  /** The pages of one layer, in the order of `table`. */
  layerPages(table: PageTable, layer: number): { keys: Float32Array[]; values: Float32Array[] } {
    const pages = table.pages.map(page => this.page(page))
    return {
      keys: pages.map(page => page.keys.get(layer) as Float32Array),
      values: pages.map(page => page.values.get(layer) as Float32Array),
    }
  }

  private page(page: number): Page {
    return this.pages.get(page) as Page
  }
}

export class ReferenceSequence implements SequenceState {
  length = 0
  linear: readonly (LinearState | null)[] // [layers], null for full attention
  draft: DraftState | null = null // null: unknown, as in an empty sequence or after an import
  table: PageTable

  constructor(
    private readonly config: ModelConfig,
    readonly memory: KvMemory,
  ) {
    this.linear = emptyLinear(config)
    this.table = new PageTable(memory.pool)
  }

  get bytes(): number {
    return linearBytes(this.linear) + this.table.pages.length * this.memory.pageBytes
  }

  /** What a step does at its very end. */
  commit(tokens: number, linear: readonly (LinearState | null)[], draft: DraftState | null): void {
    this.length += tokens
    this.linear = linear
    this.draft = draft
    this.table.trim(this.length)
  }

  async clear(): Promise<void> {
    this.become(0, emptyLinear(this.config), new PageTable(this.memory.pool), null)
  }

  clearPredictions(): void {} // this backend predicts nothing

  async hold(): Promise<HeldState> {
    return new ReferenceHeldState(this, this.length, this.linear, this.table.share(), this.draft)
  }

  async restore(held: HeldState): Promise<void> {
    const { length, linear, table, draft } = held as ReferenceHeldState
    this.become(length, linear, table.share(), draft)
  }

  async exportLayer(layer: number): Promise<LayerState> {
    const linear = this.linear[layer]
    if (linear) return { kind: 'linear_attention', conv: linear.conv.slice(), recurrent: linear.recurrent.slice() }
    const keys = await this.exportRows(layer, 'keys', 0, this.length)
    return { kind: 'full_attention', keys, values: await this.exportRows(layer, 'values', 0, this.length) }
  }

  async exportRows(layer: number, part: KvPart, start: number, rows: number): Promise<Float32Array> {
    const row = kvRowSize(this.config)
    const pages = this.memory.layerPages(this.table, layer)[part]
    const out = new Float32Array(rows * row)
    eachPagePart(PAGE_TOKENS, start, rows, (page, first, count, done) => {
      out.set(pages[page].subarray(first * row, (first + count) * row), done * row)
    })
    return out
  }

  async beginImport(length: number): Promise<StateImport> {
    const row = kvRowSize(this.config)
    const linear = emptyLinear(this.config)
    const table = new PageTable(this.memory.pool)
    try {
      table.reserve(0, length)
    } catch (error) {
      table.release()
      throw error
    }
    return {
      rows: (layer, part, start, rows) => {
        const pages = this.memory.layerPages(table, layer)[part]
        eachPagePart(PAGE_TOKENS, start, rows.length / row, (page, first, count, done) => {
          pages[page].set(rows.subarray(done * row, (done + count) * row), first * row)
        })
      },
      linear(layer, { conv, recurrent }) {
        linear[layer] = { conv: conv.slice(), recurrent: recurrent.slice() }
      },
      commit: () => this.become(length, linear, table, null),
      drop: () => table.release(),
    }
  }

  importLayers(length: number, layers: Iterable<LayerState>): Promise<void> {
    return importWhole(this, length, layers)
  }

  release(): void {
    this.become(0, [], new PageTable(this.memory.pool), null)
  }

  private become(length: number, linear: readonly (LinearState | null)[], table: PageTable, draft: DraftState | null) {
    this.table.release()
    this.length = length
    this.linear = linear
    this.table = table
    this.draft = draft
  }
}

class ReferenceHeldState implements HeldState {
  constructor(
    private readonly owner: ReferenceSequence,
    readonly length: number,
    readonly linear: readonly (LinearState | null)[],
    readonly table: PageTable,
    readonly draft: DraftState | null,
  ) {}

  get bytes(): number {
    const own = this.owner.linear === this.linear ? 0 : linearBytes(this.linear)
    return own + this.table.ownPages * this.owner.memory.pageBytes
  }

  release(): void {
    this.table.release()
  }
}

function emptyLinear(config: ModelConfig): (LinearState | null)[] {
  return config.layerKinds.map(kind => {
    if (kind === 'full_attention') return null
    const conv = new Float32Array(convStateSize(config))
    return { conv, recurrent: new Float32Array(recurrentStateSize(config)) }
  })
}

function linearBytes(linear: readonly (LinearState | null)[]): number {
  return linear.reduce((sum, state) => sum + (state ? state.conv.byteLength + state.recurrent.byteLength : 0), 0)
}
