// What kernels see of the experts in GPU memory: the table (layer, expert) → slot, a table of a
// wave's experts alone, the buffers that slots lie in, and the slots of shared experts, which stay.
// The tables say what commands find that are submitted from now on. Which expert gets which slot is
// decided in residency.ts; its bytes are copied there by loader.ts. Layers are counted among those
// with experts.
import type { ByteSource } from '../../../files/source.js'
import { storageBuffer } from '../../../gpu/device/kernel.js'
import type { PoolPlan, SlotMove } from '../../../gpu/memory/slotLayout.js'
import type { PoolBuffer, SlotPools } from '../../../gpu/memory/slotPools.js'

/** In a table: the expert is in no slot. */
export const MISSING = 0xffffffff

interface TableShape {
  readonly layers: number
  readonly experts: number // of a layer
  readonly stride: number // bytes from one slot to the next
  readonly pools: PoolPlan
}

/** Where the bytes of a slot are, and whose they are. */
export interface SlotPlace {
  readonly layer: number
  readonly buffer: GPUBuffer
  readonly offset: number
}

/** Where shared experts come from. */
interface SharedExperts {
  readonly weights: ByteSource
  readonly moves: readonly (readonly SlotMove[])[] // [layers]
}

export class SlotTable {
  readonly rows: GPUBuffer // [layers, experts]: the slot of each expert in its pool, or MISSING
  readonly waveRows: GPUBuffer // [layers, experts]: only the experts of a wave
  private readonly keys: Int32Array // [slots], layer * experts + expert that the table shows in it; -1: none
  private readonly missing: Int32Array // [layers], experts that the table shows in no slot
  private readonly shown: Uint32Array // [layers, experts], what `rows` has, or will have after `write`
  private readonly changed = new Set<number>() // layers whose row must be written
  private shared: SharedExperts | null = null

  constructor(
    private readonly device: GPUDevice,
    private readonly shape: TableShape,
    private readonly pools: SlotPools,
  ) {
    const { layers, experts } = shape
    this.keys = new Int32Array(shape.pools.slots * shape.pools.pools).fill(-1)
    this.missing = new Int32Array(layers).fill(experts)
    this.shown = new Uint32Array(layers * experts).fill(MISSING)
    this.rows = storageBuffer(device, this.shown.byteLength, 'slot table')
    device.queue.writeBuffer(this.rows, 0, this.shown)
    this.waveRows = storageBuffer(device, this.shown.byteLength, 'wave table')
  }

  /** Moves on when a pool was replaced: commands that were recorded before must not be submitted. */
  get generation(): number {
    return this.pools.generation
  }

  /** The slots of a layer. */
  pool(layer: number): PoolBuffer {
    return this.pools.of(layer)
  }

  /**
   * The slot of a layer's shared expert, before those of the experts; null where it is computed
   * apart.
   */
  sharedSlot(layer: number): number | null {
    const { hasShared, poolOfLayer } = this.shape.pools
    return hasShared ? layer - poolOfLayer.indexOf(poolOfLayer[layer]) : null
  }

  /**
   * A slot that is no expert's and has finite weights: the shared expert's, or one that stays
   * empty.
   */
  spareSlot(layer: number): number {
    return this.sharedSlot(layer) ?? 0
  }

  /** Whether every expert of the layer is shown, so that no routing can miss. */
  isResident(layer: number): boolean {
    return this.missing[layer] === 0
  }

  get isAllResident(): boolean {
    return this.missing.every(count => count === 0)
  }

  /** Whether the expert, layer * experts + expert, is shown. */
  isShown(key: number): boolean {
    return this.shown[key] !== MISSING
  }

  /** Shows an expert, layer * experts + expert, in a slot, and says where its bytes belong. */
  show(slot: number, key: number): SlotPlace {
    const { experts, stride } = this.shape
    const layer = Math.floor(key / experts)
    const place = this.pools.placeOf(slot)
    this.keys[slot] = key
    this.missing[layer]--
    this.set(key, place)
    return { layer, buffer: this.pools.buffer(layer), offset: place * stride }
  }

  /** Shows what was in the slot no longer. */
  hide(slot: number): void {
    const key = this.keys[slot]
    if (key < 0) return
    this.keys[slot] = -1
    this.missing[Math.floor(key / this.shape.experts)]++
    this.set(key, MISSING)
  }

  /** Writes what `show` and `hide` have changed. */
  write(): void {
    const { experts } = this.shape
    for (const layer of this.changed) {
      const at = layer * experts
      this.device.queue.writeBuffer(this.rows, at * 4, this.shown, at, experts)
    }
    this.changed.clear()
  }

  /** Shows some of a layer's experts in `waveRows`, and no others. */
  showWave(layer: number, wave: readonly { readonly expert: number; readonly slot: number }[]): void {
    const { experts } = this.shape
    const row = new Uint32Array(experts).fill(MISSING)
    for (const { expert, slot } of wave) row[expert] = this.pools.placeOf(slot)
    this.device.queue.writeBuffer(this.waveRows, layer * experts * 4, row)
  }

  /** Puts the shared experts into their slots, once. */
  async loadShared(weights: ByteSource, moves: readonly (readonly SlotMove[])[]): Promise<void> {
    this.shared = { weights, moves }
    for (const layer of moves.keys()) {
      this.writeShared(layer, await this.readShared(layer))
      // What is written waits in memory of its own until it was copied.
      await this.device.queue.onSubmittedWorkDone()
    }
  }

  get hasShared(): boolean {
    return this.shared !== null
  }

  async readShared(layer: number): Promise<Uint8Array> {
    const { weights, moves } = this.shared as SharedExperts
    const bytes = new Uint8Array(this.shape.stride)
    await Promise.all(moves[layer].map(({ from, to, size }) => weights.read(from, bytes.subarray(to, to + size))))
    return bytes
  }

  writeShared(layer: number, bytes: Uint8Array): void {
    const at = (this.sharedSlot(layer) as number) * this.shape.stride
    this.device.queue.writeBuffer(this.pools.buffer(layer), at, bytes as Uint8Array<ArrayBuffer>)
  }

  private set(key: number, place: number): void {
    this.shown[key] = place
    this.changed.add(Math.floor(key / this.shape.experts))
  }
}
