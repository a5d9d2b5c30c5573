// The way of an expert's bytes into its slot: mapped staging buffers, copies on the GPU's own queue, and the table
// (layer, expert) → slot that kernels look up. Everything that touches a slot goes through the queue in order, so a slot
// may be given to another expert as soon as the commands that use it are submitted. A submission costs as much as a layer,
// so a decode pass lets copies and table rows wait for the commands that need them and go with those.
import { messageOf } from '../../../base/errors.js'
import type { SlotLife } from '../../../experts/slotLife.js'
import { bufferUsage, mapMode } from '../../../gpu/device/gpuFlags.js'
import { createChecked } from '../../../gpu/device/gpuMemory.js'
import { storageBuffer } from '../../../gpu/device/kernel.js'

export const MISSING = 0xffffffff
export const STAGING_BUFFERS = 28

/** What the staging buffers take. */
export function stagingBytes(stride: number, recordBytes: number): number {
  return STAGING_BUFFERS * stagingSize(stride, recordBytes)
}

function stagingSize(stride: number, recordBytes: number): number {
  return Math.max(stride, Math.ceil(recordBytes / 4) * 4)
}

export interface UploadShape {
  readonly layers: number
  readonly experts: number
  readonly slots: number // of all pools
  readonly stride: number
  readonly recordBytes: number
}

interface Upload {
  readonly layer: number
  readonly buffer: number // of staging
  readonly target: GPUBuffer
  readonly offset: number
}

export class ExpertUploads {
  readonly table: GPUBuffer // [layers, experts]
  /** A staging buffer has become free. */
  onFree: () => void = () => {}
  /** A staging buffer cannot be had back: the device is gone, or as good as gone. */
  onLost: (reason: string) => void = () => {}
  private readonly device: GPUDevice
  private readonly experts: number
  private readonly stride: number
  private readonly life: SlotLife
  private readonly staging: readonly GPUBuffer[]
  private readonly views: (Uint8Array | null)[] // of the buffers that are mapped; a range can be asked for once per mapping
  private readonly keys: Int32Array // [slots], layer * experts + expert that the table shows in it; -1: none
  private readonly missing: Int32Array // [layers], experts that the table shows in no slot
  private readonly rows: Uint32Array // what the table shows, or will show
  private readonly changed = new Set<number>() // layers whose row must be written
  private pending: Upload[] = []
  private isGathering = false

  static async create(device: GPUDevice, shape: UploadShape, life: SlotLife): Promise<ExpertUploads> {
    const descriptors = Array.from({ length: life.stagingBuffers }, () => ({
      label: 'expert staging',
      size: stagingSize(shape.stride, shape.recordBytes),
      usage: bufferUsage.mapWrite | bufferUsage.copySrc,
      mappedAtCreation: true,
    }))
    return new ExpertUploads(device, shape, life, await createChecked(device, descriptors, 'expert staging'))
  }

  private constructor(device: GPUDevice, shape: UploadShape, life: SlotLife, staging: readonly GPUBuffer[]) {
    this.device = device
    this.experts = shape.experts
    this.stride = shape.stride
    this.life = life
    this.staging = staging
    this.views = staging.map(() => null)
    this.keys = new Int32Array(shape.slots).fill(-1)
    this.missing = new Int32Array(shape.layers).fill(shape.experts)
    this.rows = new Uint32Array(shape.layers * shape.experts).fill(MISSING)
    this.table = storageBuffer(device, this.rows.byteLength, 'slot table')
    device.queue.writeBuffer(this.table, 0, this.rows)
  }

  /** Whether kernels find every expert of the layer. */
  isResident(layer: number): boolean {
    return this.missing[layer] === 0
  }

  /** The bytes of a staging buffer that is being filled. */
  view(buffer: number): Uint8Array {
    this.views[buffer] ??= new Uint8Array(this.staging[buffer].getMappedRange())
    return this.views[buffer]
  }

  /** Puts a filled buffer into a slot, where kernels find the expert from then on. `at`: the slot's place in `target`. */
  send(buffer: number, target: GPUBuffer, at: number, slot: number, key: number): void {
    this.views[buffer] = null
    this.staging[buffer].unmap()
    const layer = Math.floor(key / this.experts)
    this.keys[slot] = key
    this.missing[layer]--
    this.show(key, at)
    const offset = at * this.stride
    // Two for one slot stay in order.
    if (this.pending.some(other => other.target === target && other.offset === offset)) this.submit([])
    this.pending.push({ layer, buffer, target, offset })
    // A pass that gathers must not starve the reads either.
    if (!this.isGathering || this.life.freeStaging === 0) this.submit([])
  }

  /** Kernels that are submitted from now on do not find what was in the slot. */
  hide(slot: number): void {
    const key = this.keys[slot]
    if (key < 0) return
    this.keys[slot] = -1
    this.missing[Math.floor(key / this.experts)]++
    this.show(key, MISSING)
    if (!this.isGathering) this.writeRows()
  }

  /** Whether kernels that are submitted from now on find the expert. */
  isShown(key: number): boolean {
    return this.rows[key] !== MISSING
  }

  /** While this is on, copies and rows wait for `submit`. */
  set gathers(on: boolean) {
    this.isGathering = on
    if (!on) this.submit([])
  }

  /**
   * Submits commands that look at layers before `end`, one after the other, so that the GPU is at work while the driver takes
   * in the rest: what they may need goes before them, all else after the last, since one may use what another has looked up.
   */
  submit(commands: readonly GPUCommandBuffer[], end = Number.POSITIVE_INFINITY): void {
    const first = this.pending.filter(({ layer }) => layer < end)
    const later = this.pending.filter(({ layer }) => layer >= end)
    this.pending = []
    this.writeRows()
    this.copyAndSubmit(first, commands)
    this.copyAndSubmit(later, [])
  }

  private copyAndSubmit(uploads: readonly Upload[], commands: readonly GPUCommandBuffer[]): void {
    const [first = [], ...others] = commands.map(command => [command])
    if (uploads.length > 0) {
      const encoder = this.device.createCommandEncoder()
      for (const { buffer, target, offset } of uploads) {
        encoder.copyBufferToBuffer(this.staging[buffer], 0, target, offset, this.stride)
      }
      first.unshift(encoder.finish())
    }
    for (const together of [first, ...others]) if (together.length > 0) this.device.queue.submit(together)
    for (const { buffer } of uploads) {
      this.life.submit(buffer)
      this.staging[buffer].mapAsync(mapMode.write).then(
        () => {
          this.life.mapped(buffer)
          this.onFree()
        },
        error => this.onLost(messageOf(error)),
      )
    }
  }

  private show(key: number, at: number): void {
    this.rows[key] = at
    this.changed.add(Math.floor(key / this.experts))
  }

  private writeRows(): void {
    for (const layer of this.changed) {
      const at = layer * this.experts
      this.device.queue.writeBuffer(this.table, at * 4, this.rows, at, this.experts)
    }
    this.changed.clear()
  }
}
