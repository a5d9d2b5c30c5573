// Slots of recurrent state, shared by counting holders: a sequence and the checkpoints taken of it hold the same slot
// until the sequence's next step writes another one. Slot 0 is the empty sequence: all zero, and never written.
import type { ModelConfig } from '../../model/config.js'
import { layersOfKind } from '../../model/sizes.js'
import type { PlannedState } from '../backend.js'
import { GrowingPool, type GrowingPoolOptions, growingBytes } from './growingPool.js'
import { stateQuads } from './linearShape.js'

export const EMPTY_STATE = 0

/** The empty one, and of each planned sequence the present one and the next. */
export function plannedStates({ sequences }: PlannedState): number {
  return 1 + 2 * sequences
}

/** What the pool takes when it is made for so many states. */
export function statePoolBytes(config: ModelConfig, states: number, maxBindingBytes: number): number {
  return growingBytes(poolOptions(config, layersOfKind(config, 'linear_attention'), maxBindingBytes), states)
}

function poolOptions(config: ModelConfig, layers: readonly number[], maxBindingBytes: number): GrowingPoolOptions {
  return { what: 'recurrent state', layers, cellBytes: stateQuads(config) * 16, initialCells: 4, maxBindingBytes }
}

export class StatePool {
  readonly slotBytes: number // of all layers
  readonly layerBytes: number
  readonly #pool: GrowingPool
  readonly #holders: number[] = [1] // by slot
  readonly #free: number[] = []

  constructor(device: GPUDevice, config: ModelConfig, layers: readonly number[], maxBindingBytes: number) {
    const options = poolOptions(config, layers, maxBindingBytes)
    this.layerBytes = options.cellBytes
    this.slotBytes = this.layerBytes * layers.length
    this.#pool = new GrowingPool(device, options)
  }

  get generation(): number {
    return this.#pool.generation
  }

  get bytes(): number {
    return this.#pool.bytes
  }

  /** What to ask for memory when the GPU refuses it. */
  set makeRoom(ask: (bytes: number) => Promise<boolean>) {
    this.#pool.makeRoom = ask
  }

  buffer(layer: number): GPUBuffer {
    return this.#pool.buffer(layer)
  }

  /** Makes sure that `count` slots can be taken. */
  async reserve(count: number): Promise<void> {
    await this.#pool.reserve(this.#holders.length + Math.max(0, count - this.#free.length))
  }

  take(): number {
    const slot = this.#free.pop() ?? this.#holders.length
    if (slot >= this.#pool.cells) throw new Error(`state ${slot} of ${this.#pool.cells} was not reserved`)
    this.#holders[slot] = 1
    return slot
  }

  holdersOf(slot: number): number {
    return this.#holders[slot]
  }

  retain(slot: number): void {
    this.#holders[slot]++
  }

  release(slot: number): void {
    if (--this.#holders[slot] === 0) this.#free.push(slot)
  }
}
