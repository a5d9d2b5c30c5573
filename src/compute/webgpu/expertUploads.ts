// The way of an expert's bytes into its slot: a ring of mapped staging buffers, copies on the GPU's own queue, and the
// table (layer, expert) → slot that kernels look up. Everything that touches a slot goes through the queue in order, so a
// slot may be given to another expert as soon as the commands that use it are submitted. A submission costs as much as a
// layer, so a decode pass lets copies and table rows wait for the commands that need them and go with those.
import { bufferUsage, mapMode } from './gpuFlags.js'
import { createChecked } from './gpuMemory.js'
import { storageBuffer } from './kernel.js'

export const MISSING = 0xffffffff
export const STAGING_BUFFERS = 28

interface Upload {
  readonly layer: number
  readonly staging: GPUBuffer
  readonly target: GPUBuffer
  readonly offset: number
}

export class ExpertUploads {
  readonly table: GPUBuffer // [layers, experts]
  readonly #device: GPUDevice
  readonly #experts: number
  readonly #stride: number
  readonly #staging: GPUBuffer[] // mapped and free
  readonly #waiting: ((buffer: GPUBuffer) => void)[] = []
  readonly #rows: Uint32Array // what the table shows, or will show
  readonly #changed = new Set<number>() // layers whose row must be written
  #pending: Upload[] = []
  #gathers = false

  static async create(
    device: GPUDevice,
    shape: { readonly layers: number; readonly experts: number; readonly stride: number; readonly recordBytes: number },
  ): Promise<ExpertUploads> {
    const descriptors = Array.from({ length: STAGING_BUFFERS }, () => ({
      label: 'expert staging',
      size: Math.max(shape.stride, Math.ceil(shape.recordBytes / 4) * 4),
      usage: bufferUsage.mapWrite | bufferUsage.copySrc,
      mappedAtCreation: true,
    }))
    return new ExpertUploads(device, shape, await createChecked(device, descriptors, 'expert staging'))
  }

  private constructor(
    device: GPUDevice,
    shape: { readonly layers: number; readonly experts: number; readonly stride: number },
    staging: GPUBuffer[],
  ) {
    this.#device = device
    this.#experts = shape.experts
    this.#stride = shape.stride
    this.#staging = staging
    this.#rows = new Uint32Array(shape.layers * shape.experts).fill(MISSING)
    this.table = storageBuffer(device, this.#rows.byteLength, 'slot table')
    device.queue.writeBuffer(this.table, 0, this.#rows)
  }

  /** A mapped buffer to fill, once there is one. */
  take(): Promise<GPUBuffer> | GPUBuffer {
    return this.#staging.pop() ?? new Promise(resolve => this.#waiting.push(resolve))
  }

  /** A mapped buffer that was not used after all. */
  giveBack(buffer: GPUBuffer): void {
    const next = this.#waiting.shift()
    if (next !== undefined) next(buffer)
    else this.#staging.push(buffer)
  }

  /** Puts a filled buffer into a slot, where kernels find the expert from then on. `key`: layer * experts + expert. */
  send(staging: GPUBuffer, target: GPUBuffer, slot: number, key: number): void {
    staging.unmap()
    const layer = this.#show(key, slot)
    const offset = slot * this.#stride
    // Two for one slot stay in order.
    if (this.#pending.some(other => other.target === target && other.offset === offset)) this.submit([])
    this.#pending.push({ layer, staging, target, offset })
    // A pass that gathers must not starve the reads either.
    if (!this.#gathers || this.#staging.length === 0) this.submit([])
  }

  /** Kernels that are submitted from now on do not find the expert. */
  hide(key: number): void {
    this.#show(key, MISSING)
    if (!this.#gathers) this.#writeRows()
  }

  /** While this is on, copies and rows wait for `submit`. */
  set gathers(on: boolean) {
    this.#gathers = on
    if (!on) this.submit([])
  }

  /** Submits commands that look at layers before `end`: what they may need goes before them, all else after. */
  submit(commands: readonly GPUCommandBuffer[], end = Number.POSITIVE_INFINITY): void {
    const first = this.#pending.filter(({ layer }) => layer < end)
    const later = this.#pending.filter(({ layer }) => layer >= end)
    this.#pending = []
    this.#writeRows()
    this.#copyAndSubmit(first, commands)
    this.#copyAndSubmit(later, [])
  }

  #copyAndSubmit(uploads: readonly Upload[], commands: readonly GPUCommandBuffer[]): void {
    const all = [...commands]
    if (uploads.length > 0) {
      const encoder = this.#device.createCommandEncoder()
      for (const { staging, target, offset } of uploads) {
        encoder.copyBufferToBuffer(staging, 0, target, offset, this.#stride)
      }
      all.unshift(encoder.finish())
    }
    if (all.length > 0) this.#device.queue.submit(all)
    for (const { staging } of uploads) {
      void staging.mapAsync(mapMode.write).then(
        () => this.giveBack(staging),
        () => {}, // the device is gone
      )
    }
  }

  #show(key: number, slot: number): number {
    const layer = Math.floor(key / this.#experts)
    this.#rows[key] = slot
    this.#changed.add(layer)
    return layer
  }

  #writeRows(): void {
    for (const layer of this.#changed) {
      const at = layer * this.#experts
      this.#device.queue.writeBuffer(this.table, at * 4, this.#rows, at, this.#experts)
    }
    this.#changed.clear()
  }
}
