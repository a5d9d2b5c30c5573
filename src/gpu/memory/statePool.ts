// Slots of recurrent state, shared by counting holders: a sequence and the checkpoints taken of it hold the same slot
// until the sequence's next step writes another one. Slot 0 is the empty sequence: all zero, and never written.
import { MOST_GUESSES, type PlannedState } from '../../backends/backend.js'
import type { ModelConfig } from '../../model/config.js'
import { stateQuads } from '../../model/linearShape.js'
import { layersOfKind } from '../../model/sizes.js'
import { GrowingPool, type GrowingPoolOptions, growingBytes } from './growingPool.js'

export const EMPTY_STATE = 0

/** The empty one, and of each planned sequence the present one and the next: one for each token of a step with guesses. */
export function plannedStates({ sequences }: PlannedState, { draftHead }: ModelConfig): number {
  return 1 + (draftHead === null ? 2 : 2 + MOST_GUESSES) * sequences
}

/** What the pool takes when it is made for so many states. */
export function statePoolBytes(config: ModelConfig, states: number, maxBindingBytes: number): number {
  const rows = config.draftHead === null ? 0 : growingBytes(rowOptions(config, maxBindingBytes), states)
  return growingBytes(poolOptions(config, layersOfKind(config, 'linear_attention'), maxBindingBytes), states) + rows
}

/** What the head for drafts has to know of the last token. */
function rowOptions({ hiddenSize }: ModelConfig, maxBindingBytes: number): GrowingPoolOptions {
  return { what: 'last rows', layers: [0], cellBytes: hiddenSize * 4, initialCells: 4, maxBindingBytes }
}

function poolOptions(config: ModelConfig, layers: readonly number[], maxBindingBytes: number): GrowingPoolOptions {
  return { what: 'recurrent state', layers, cellBytes: stateQuads(config) * 16, initialCells: 4, maxBindingBytes }
}

export class StatePool {
  readonly slotBytes: number // of all layers
  readonly layerBytes: number
  private readonly pool: GrowingPool
  private readonly rows: GrowingPool | null // by the same slots; null: there is no head for drafts
  private readonly holders: number[] = [1] // by slot
  private readonly free: number[] = []

  constructor(device: GPUDevice, config: ModelConfig, layers: readonly number[], maxBindingBytes: number) {
    const options = poolOptions(config, layers, maxBindingBytes)
    this.layerBytes = options.cellBytes
    this.slotBytes = this.layerBytes * layers.length
    this.pool = new GrowingPool(device, options)
    this.rows = config.draftHead && new GrowingPool(device, rowOptions(config, maxBindingBytes))
  }

  get generation(): number {
    return this.pool.generation + (this.rows?.generation ?? 0)
  }

  get bytes(): number {
    return this.pool.bytes + (this.rows?.bytes ?? 0)
  }

  /** What to ask for memory when the GPU refuses it. */
  set makeRoom(ask: (bytes: number) => Promise<boolean>) {
    this.pool.makeRoom = ask
    if (this.rows) this.rows.makeRoom = ask
  }

  buffer(layer: number): GPUBuffer {
    return this.pool.buffer(layer)
  }

  /** [slots, hidden]: the hidden row of a sequence's last token, before the final norm, for the head for drafts. */
  get lastRows(): GPUBuffer {
    if (this.rows === null) throw new Error('there is no head for drafts')
    return this.rows.buffer(0)
  }

  /** Makes sure that `count` slots can be taken. */
  async reserve(count: number): Promise<void> {
    const slots = this.slotsFor(count)
    await this.rows?.reserve(slots)
    await this.pool.reserve(slots)
  }

  /** The same where there is memory left that nobody has to give back, and nothing where not. */
  async offer(count: number): Promise<void> {
    const slots = this.slotsFor(count)
    await this.rows?.offer(slots)
    await this.pool.offer(slots)
  }

  private slotsFor(count: number): number {
    return this.holders.length + Math.max(0, count - this.free.length)
  }

  private get cells(): number {
    return Math.min(this.pool.cells, this.rows?.cells ?? this.pool.cells)
  }

  /** Whether one can be taken without asking for memory. */
  get hasFree(): boolean {
    return this.free.length > 0 || this.holders.length < this.cells
  }

  take(): number {
    const slot = this.free.pop() ?? this.holders.length
    if (slot >= this.cells) throw new Error(`state ${slot} of ${this.cells} was not reserved`)
    this.holders[slot] = 1
    return slot
  }

  holdersOf(slot: number): number {
    return this.holders[slot]
  }

  retain(slot: number): void {
    this.holders[slot]++
  }

  release(slot: number): void {
    if (--this.holders[slot] === 0) this.free.push(slot)
  }
}
