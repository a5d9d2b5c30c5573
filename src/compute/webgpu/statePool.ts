// Slots of recurrent state, shared by counting holders: a sequence and the checkpoints taken of it hold the same slot
// until the sequence's next step writes another one. Slot 0 is the empty sequence: all zero, and never written.
import type { ModelConfig } from '../../model/config.js'
import { GrowingPool } from './growingPool.js'
import { stateQuads } from './linearShape.js'

export const EMPTY_STATE = 0

export class StatePool {
  readonly slotBytes: number // of all layers
  readonly layerBytes: number
  readonly #pool: GrowingPool
  readonly #holders: number[] = [1] // by slot
  readonly #free: number[] = []

  constructor(device: GPUDevice, config: ModelConfig, layers: readonly number[], maxBindingBytes: number) {
    this.layerBytes = stateQuads(config) * 16
    this.slotBytes = this.layerBytes * layers.length
    this.#pool = new GrowingPool(device, {
      what: 'recurrent state',
      layers,
      cellBytes: this.layerBytes,
      initialCells: 4,
      maxBindingBytes,
    })
  }

  get generation(): number {
    return this.#pool.generation
  }

  get bytes(): number {
    return this.#pool.bytes
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
