// The state of one sequence on the GPU: a slot of recurrent state and a table of K/V pages. Holding and restoring share
// both and copy nothing; export and import are the only ways across to the host.
import { bufferUsage } from '../../../gpu/device/gpuFlags.js'
import { createChecked, readMapped } from '../../../gpu/device/gpuMemory.js'
import type { KvPool } from '../../../gpu/memory/kvPool.js'
import { EMPTY_STATE, type StatePool } from '../../../gpu/memory/statePool.js'
import type { ModelConfig } from '../../../model/config.js'
import { convStateSize, kvRowSize, recurrentStateSize } from '../../../model/sizes.js'
import {
  type HeldState,
  importWhole,
  type KvPart,
  type LayerState,
  type SequenceState,
  type StateImport,
} from '../../backend.js'
import { eachPagePart, PAGE_TOKENS, PageTable } from '../../kvPages.js'

/** What the head for drafts knows of a sequence; the hidden row of its last token lies with its state. */
export interface GpuDraft {
  readonly firstRow: number // rows before it were never computed
}

export interface SequenceHome {
  readonly device: GPUDevice
  readonly config: ModelConfig
  readonly kv: KvPool
  readonly states: StatePool
  /** What was computed ahead of a sequence is none of it any more. */
  dropAhead(sequence: GpuSequence): void
  /** Runs work that may make pools grow while no step runs: the buffers of a step must stay what they are. */
  inTurn<T>(work: () => Promise<T>): Promise<T>
}

export class GpuSequence implements SequenceState {
  length = 0
  state = EMPTY_STATE
  table: PageTable
  draft: GpuDraft | null = null // null: nothing is known of the last token
  private readonly home: SequenceHome

  constructor(home: SequenceHome) {
    this.home = home
    this.table = new PageTable(home.kv.pages)
    home.states.retain(EMPTY_STATE)
  }

  get bytes(): number {
    const state = this.state === EMPTY_STATE ? 0 : this.home.states.slotBytes
    return state + this.table.pages.length * this.home.kv.pageBytes
  }

  /** What a step does at its very end: takes the new state slot over. Of tokens that are not kept nothing is left. */
  commit(tokens: number, state: number, draft: GpuDraft | null): void {
    this.home.states.release(this.state)
    this.length += tokens
    this.state = state
    this.draft = draft
    this.table.trim(this.length)
  }

  async clear(): Promise<void> {
    this.home.states.retain(EMPTY_STATE)
    this.become(0, EMPTY_STATE, new PageTable(this.home.kv.pages), null)
  }

  /** Nothing is known here of tokens before: guesses come from the present token's own routers. */
  clearPredictions(): void {}

  async hold(): Promise<HeldState> {
    this.home.states.retain(this.state)
    return new GpuHeldState(this.home, this.length, this.state, this.table.share(), this.draft)
  }

  async restore(held: HeldState): Promise<void> {
    const { length, state, table, draft } = held as GpuHeldState
    this.home.states.retain(state)
    this.become(length, state, table.share(), draft)
  }

  async exportLayer(layer: number): Promise<LayerState> {
    const { config, states } = this.home
    if (config.layerKinds[layer] === 'linear_attention') {
      const bytes = await this.read(() => states.buffer(layer), [this.state * states.layerBytes], states.layerBytes)
      const floats = new Float32Array(bytes)
      return {
        kind: 'linear_attention',
        conv: convToHost(floats, config),
        recurrent: transposeState(floats.subarray(4 * config.linearConvDim), config, 'toHost'),
      }
    }
    const keys = await this.exportRows(layer, 'keys', 0, this.length)
    return { kind: 'full_attention', keys, values: await this.exportRows(layer, 'values', 0, this.length) }
  }

  async exportRows(layer: number, part: KvPart, start: number, rows: number): Promise<Float32Array> {
    const { config, kv } = this.home
    const row = kvRowSize(config)
    const out = new Float32Array(rows * row)
    if (rows === 0) return out
    const pageRows = PAGE_TOKENS * row
    const begin = Math.floor(start / PAGE_TOKENS)
    const pages = this.table.pages.slice(begin, Math.ceil((start + rows) / PAGE_TOKENS))
    const offsets = pages.map(page => page * kv.layerPageBytes + partOffset(part, pageRows))
    const floats = new Float32Array(await this.read(() => kv.buffer(layer), offsets, pageRows * 4))
    eachPagePart(PAGE_TOKENS, start, rows, (page, first, count, done) => {
      const at = (page - begin) * pageRows + first * row
      out.set(floats.subarray(at, at + count * row), done * row)
    })
    return out
  }

  async beginImport(length: number): Promise<StateImport> {
    const { kv, states } = this.home
    const table = new PageTable(kv.pages)
    const slot = await this.home.inTurn(async () => {
      const pages = Math.ceil(length / PAGE_TOKENS)
      await kv.reserve(pages, pages)
      await states.reserve(1)
      table.reserve(0, length)
      return states.take()
    })
    return this.importInto(length, table, slot)
  }

  importLayers(length: number, layers: Iterable<LayerState>): Promise<void> {
    return importWhole(this, length, layers)
  }

  release(): void {
    this.home.states.retain(EMPTY_STATE)
    this.become(0, EMPTY_STATE, new PageTable(this.home.kv.pages), null)
  }

  /** Pools that grow meanwhile take with them what was written: each write asks for the buffer anew. */
  private importInto(length: number, table: PageTable, slot: number): StateImport {
    const { device, config, kv, states } = this.home
    const row = kvRowSize(config)
    return {
      rows(layer, part, start, rows) {
        eachPagePart(PAGE_TOKENS, start, rows.length / row, (page, first, count, done) => {
          const at = table.pages[page] * kv.layerPageBytes + partOffset(part, PAGE_TOKENS * row) + first * row * 4
          device.queue.writeBuffer(kv.buffer(layer), at, rows.slice(done * row, (done + count) * row))
        })
      },
      linear(layer, state) {
        const floats = new Float32Array(states.layerBytes / 4)
        convToGpu(state.conv, floats, config)
        floats.set(transposeState(state.recurrent, config, 'toGpu'), 4 * config.linearConvDim)
        device.queue.writeBuffer(states.buffer(layer), slot * states.layerBytes, floats)
      },
      commit: () => this.become(length, slot, table, null),
      drop() {
        table.release()
        states.release(slot)
      },
    }
  }

  private become(length: number, state: number, table: PageTable, draft: GpuDraft | null): void {
    this.table.release()
    this.home.states.release(this.state)
    this.length = length
    this.state = state
    this.table = table
    this.draft = draft
    this.home.dropAhead(this)
  }

  /** Ranges of one size, back to back. A pool may grow while memory is asked for: its buffer is the one that it has after that. */
  private async read(bufferOf: () => GPUBuffer, offsets: readonly number[], size: number): Promise<ArrayBuffer> {
    const { device } = this.home
    const total = offsets.length * size
    const descriptor = { label: 'state', size: total, usage: bufferUsage.mapRead | bufferUsage.copyDst }
    const [target] = await createChecked(device, [descriptor], 'a copy of a state')
    const encoder = device.createCommandEncoder()
    const buffer = bufferOf()
    for (const [i, offset] of offsets.entries()) encoder.copyBufferToBuffer(buffer, offset, target, i * size, size)
    device.queue.submit([encoder.finish()])
    const bytes = await readMapped(target, total)
    target.destroy()
    return bytes
  }
}

class GpuHeldState implements HeldState {
  private readonly home: SequenceHome
  private released = false

  constructor(
    home: SequenceHome,
    readonly length: number,
    readonly state: number,
    readonly table: PageTable,
    readonly draft: GpuDraft | null,
  ) {
    this.home = home
  }

  get bytes(): number {
    const own = this.state !== EMPTY_STATE && this.home.states.holdersOf(this.state) === 1
    return (own ? this.home.states.slotBytes : 0) + this.table.ownPages * this.home.kv.pageBytes
  }

  release(): void {
    if (this.released) return
    this.released = true
    this.table.release()
    this.home.states.release(this.state)
  }
}

/** Where in a page's bytes the rows of a part begin. */
function partOffset(part: KvPart, pageRows: number): number {
  return part === 'keys' ? 0 : pageRows * 4
}

/** [3, convDim] out of the GPU's [convDim, 4]. */
function convToHost(floats: Float32Array, config: ModelConfig): Float32Array {
  const conv = new Float32Array(convStateSize(config))
  const width = config.linearConvDim
  for (let channel = 0; channel < width; channel++) {
    for (let i = 0; i < 3; i++) conv[i * width + channel] = floats[channel * 4 + i]
  }
  return conv
}

function convToGpu(conv: Float32Array, floats: Float32Array, config: ModelConfig): void {
  const width = config.linearConvDim
  for (let channel = 0; channel < width; channel++) {
    for (let i = 0; i < 3; i++) floats[channel * 4 + i] = conv[i * width + channel]
  }
}

/** Between [heads, valueDim, keyDim] and the GPU's [heads, keyDim / 4, valueDim, 4]. */
function transposeState(from: Float32Array, config: ModelConfig, direction: 'toHost' | 'toGpu'): Float32Array {
  const { linearKeyDim: keyDim, linearValueDim: valueDim } = config
  const to = new Float32Array(recurrentStateSize(config))
  for (let head = 0; head < config.linearValueHeads; head++) {
    const base = head * keyDim * valueDim
    for (let v = 0; v < valueDim; v++) {
      for (let k = 0; k < keyDim; k++) {
        const host = base + v * keyDim + k
        const gpu = base + ((k >> 2) * valueDim + v) * 4 + (k & 3)
        if (direction === 'toHost') to[host] = from[gpu]
        else to[gpu] = from[host]
      }
    }
  }
  return to
}
