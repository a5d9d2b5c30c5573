// Brings the bytes of experts into GPU memory. StagedReads begins reads in the streamer's order,
// each into a mapped staging buffer; ExpertUploads copies filled buffers into slots on the GPU's
// own queue. Which buffer is free and what may happen to a slot is decided by experts/slotLife.ts;
// which expert gets which slot, in residency.ts.
import { messageOf } from '../../../base/errors.js'
import type { ExpertCache } from '../../../experts/expertCache.js'
import type { ReadPriority } from '../../../experts/readers/readRing.js'
import type { SlotLife } from '../../../experts/slotLife.js'
import { type ReadFault, type ReadOrders, readFault, type StreamerCore } from '../../../experts/streamerCore.js'
import { bufferUsage, mapMode } from '../../../gpu/device/gpuFlags.js'
import { createChecked } from '../../../gpu/device/gpuMemory.js'
import type { SlotPlace, SlotTable } from './slotTable.js'

/** Experts that can be on their way into slots at once. */
export const STAGING_BUFFERS = 28

/** What the staging buffers take. */
export function stagingBytes(stride: number, recordBytes: number): number {
  return STAGING_BUFFERS * stagingSize(stride, recordBytes)
}

function stagingSize(stride: number, recordBytes: number): number {
  return Math.max(stride, Math.ceil(recordBytes / 4) * 4)
}

export interface StagedReadActions {
  /** Fills a staging buffer with an expert's bytes. */
  read(layer: number, expert: number, buffer: number, priority: ReadPriority): PromiseLike<void>
  /** An expert that is being read ahead is wanted now. */
  promote(layer: number, expert: number): void
  /** What was in the slot is no longer found by commands that are submitted from now on. */
  hide(slot: number): void
  /** Copies a filled buffer into the slot, where commands submitted from now on find the expert. */
  send(buffer: number, slot: number, layer: number, expert: number): void
  /** Submits copies that wait for other commands, so that their buffers come back. */
  flush(): void
  /** A read has ended, and the streamer knows. */
  ended(): void
}

/**
 * The order of reads: a read begins when a staging buffer is free for it, demands before reads
 * ahead; what has come is sent on into its slot before other reads begin. Needs neither GPU nor
 * disk, so that tests try every order of events.
 */
export class StagedReads implements ReadOrders {
  /** Reads that have begun and not ended. */
  underWay = 0
  /** Reads ahead wait until they are told to begin, one by one. */
  isPaced = false
  private readonly demands: number[] = [] // slots
  private readonly ahead: number[] = []
  private isOver = false

  constructor(
    private readonly cache: ExpertCache,
    private readonly actions: StagedReadActions,
    private readonly core: () => StreamerCore,
  ) {}

  ask(slot: number, ahead: boolean): void {
    this.actions.hide(slot)
    ;(ahead ? this.ahead : this.demands).push(slot)
    this.beginReads()
  }

  promote(slot: number): void {
    if (take(this.ahead, slot)) {
      this.demands.push(slot)
      this.beginReads()
    } else if (!this.demands.includes(slot)) {
      this.actions.promote(this.cache.layerOf(slot), this.cache.expertOf(slot))
    }
  }

  callOff(slot: number): boolean {
    return take(this.demands, slot) || take(this.ahead, slot)
  }

  /** Begins what can begin. To be called when a staging buffer has become free. */
  beginReads(): void {
    while (this.beginFirst(this.demands.length > 0 || this.isPaced ? this.demands : this.ahead)) {}
  }

  /** Begins a read ahead, where these are paced and nothing else is to be read. Whether it has. */
  beginAhead(): boolean {
    return this.demands.length === 0 && this.beginFirst(this.ahead)
  }

  private beginFirst(queue: number[]): boolean {
    if (queue.length === 0 || this.isOver) return false
    const buffer = this.cache.life.begin(queue[0])
    if (buffer < 0) this.actions.flush()
    else this.begin(queue.shift() as number, buffer, queue === this.ahead ? 'prefetch' : 'demand')
    return buffer >= 0
  }

  /** Nothing begins any more, and what comes goes nowhere. */
  stop(): void {
    this.isOver = true
  }

  private begin(slot: number, buffer: number, priority: ReadPriority): void {
    const layer = this.cache.layerOf(slot)
    const expert = this.cache.expertOf(slot)
    this.underWay++
    this.actions.read(layer, expert, buffer, priority).then(
      () => this.end(slot, buffer, layer, expert, this.isOver ? { detail: 'the readers were closed' } : null),
      error => this.end(slot, buffer, layer, expert, readFault(error)),
    )
  }

  private end(slot: number, buffer: number, layer: number, expert: number, fault: ReadFault | null): void {
    this.underWay--
    const core = this.core()
    core.ended(slot, fault)
    // Before anything else is read: the slot may be given away again.
    if (fault === null) this.actions.send(buffer, slot, layer, expert)
    core.goOn()
    this.beginReads()
    this.actions.ended()
  }
}

function take(queue: number[], slot: number): boolean {
  const at = queue.indexOf(slot)
  if (at >= 0) queue.splice(at, 1)
  return at >= 0
}

interface UploadSizes {
  readonly stride: number // of a slot
  readonly recordBytes: number // of an expert on disk
}

interface Upload {
  readonly staging: number // buffer
  readonly to: SlotPlace
}

/**
 * The way of an expert's bytes into its slot: mapped staging buffers, and copies on the GPU's own
 * queue beside the rows of the table that show the expert. Everything that touches a slot goes
 * through the queue in order, so a slot may be given to another expert as soon as the commands that
 * use it are submitted. A submission costs as much as a layer, so a decode pass lets copies and
 * rows wait for the commands that need them and go with those.
 */
export class ExpertUploads {
  /** A staging buffer has become free. */
  onFree: () => void = () => {}
  /** A staging buffer cannot be had back: the device is gone, or as good as gone. */
  onLost: (reason: string) => void = () => {}
  private readonly device: GPUDevice
  private readonly stride: number
  private readonly table: SlotTable
  private readonly life: SlotLife
  private readonly staging: readonly GPUBuffer[]
  private readonly views: (Uint8Array | null)[] // of the buffers that are mapped; a range can be asked for once per mapping
  private pending: Upload[] = []
  private isGathering = false

  static async create(
    device: GPUDevice,
    { stride, recordBytes }: UploadSizes,
    table: SlotTable,
    life: SlotLife,
  ): Promise<ExpertUploads> {
    const descriptors = Array.from({ length: life.stagingBuffers }, () => ({
      label: 'expert staging',
      size: stagingSize(stride, recordBytes),
      usage: bufferUsage.mapWrite | bufferUsage.copySrc,
      mappedAtCreation: true,
    }))
    const staging = await createChecked(device, descriptors, 'expert staging')
    return new ExpertUploads(device, stride, table, life, staging)
  }

  private constructor(
    device: GPUDevice,
    stride: number,
    table: SlotTable,
    life: SlotLife,
    staging: readonly GPUBuffer[],
  ) {
    this.device = device
    this.stride = stride
    this.table = table
    this.life = life
    this.staging = staging
    this.views = staging.map(() => null)
  }

  /** The bytes of a staging buffer that is being filled. */
  view(buffer: number): Uint8Array {
    this.views[buffer] ??= new Uint8Array(this.staging[buffer].getMappedRange())
    return this.views[buffer]
  }

  /**
   * Copies a filled buffer into a slot, where kernels find the expert, layer * experts + expert,
   * from then on.
   */
  send(buffer: number, slot: number, key: number): void {
    this.views[buffer] = null
    this.staging[buffer].unmap()
    const place = this.table.show(slot, key)
    // Two for one slot stay in order.
    if (this.pending.some(({ to }) => to.buffer === place.buffer && to.offset === place.offset)) this.submit([])
    this.pending.push({ staging: buffer, to: place })
    // A pass that gathers must not starve the reads either.
    if (!this.isGathering || this.life.freeStaging === 0) this.submit([])
  }

  /** Kernels that are submitted from now on do not find what was in the slot. */
  hide(slot: number): void {
    this.table.hide(slot)
    if (!this.isGathering) this.table.write()
  }

  /** While this is on, copies and rows wait for `submit`. */
  set gathers(on: boolean) {
    this.isGathering = on
    if (!on) this.submit([])
  }

  /**
   * Submits commands that look at layers before `end`, one after the other, so that the GPU is at
   * work while the driver takes in the rest: what they may need goes before them, all else after
   * the last, since one may use what another has looked up.
   */
  submit(commands: readonly GPUCommandBuffer[], end = Number.POSITIVE_INFINITY): void {
    const first = this.pending.filter(({ to }) => to.layer < end)
    const later = this.pending.filter(({ to }) => to.layer >= end)
    this.pending = []
    this.table.write()
    this.copyAndSubmit(first, commands)
    this.copyAndSubmit(later, [])
  }

  private copyAndSubmit(uploads: readonly Upload[], commands: readonly GPUCommandBuffer[]): void {
    const [first = [], ...others] = commands.map(command => [command])
    if (uploads.length > 0) {
      const encoder = this.device.createCommandEncoder()
      for (const { staging, to } of uploads) {
        encoder.copyBufferToBuffer(this.staging[staging], 0, to.buffer, to.offset, this.stride)
      }
      first.unshift(encoder.finish())
    }
    for (const together of [first, ...others]) if (together.length > 0) this.device.queue.submit(together)
    for (const { staging: buffer } of uploads) {
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
}
