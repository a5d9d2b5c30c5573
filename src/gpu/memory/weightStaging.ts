// The way of resident weights into GPU buffers: a few mapped buffers that are filled from the file, copied and mapped again.
// A buffer that is mapped when it is made needs its size twice until the GPU has taken it over, which is more than a GPU may
// have that is nearly full.
import type { ByteSource } from '../../files/source.js'
import { bufferUsage, mapMode } from '../device/gpuFlags.js'
import { createChecked } from '../device/gpuMemory.js'

const LANES = 4
const MOST_BYTES = 8 * 2 ** 20 // a lane
const LEAST_BYTES = 64 * 1024

/** Bytes of a source that go to a place in a buffer, which has room up to the next multiple of four. */
export interface StagedRead {
  readonly from: number
  readonly at: number // a multiple of four
  readonly size: number
}

export class WeightStaging {
  private readonly device: GPUDevice
  private readonly laneBytes: number
  private readonly lanes: readonly GPUBuffer[]
  private readonly free: GPUBuffer[] // mapped
  private readonly waiting: { resolve(lane: GPUBuffer): void; reject(error: unknown): void }[] = []
  private lost: unknown = null

  /** `bytes`: what may be used of memory, more or less. */
  static async create(device: GPUDevice, bytes: number): Promise<WeightStaging> {
    const size = Math.min(MOST_BYTES, Math.max(LEAST_BYTES, Math.floor(bytes / LANES / 4) * 4))
    const usage = bufferUsage.mapWrite | bufferUsage.copySrc
    const descriptor = { label: 'weight staging', size, usage, mappedAtCreation: true }
    const lanes = await createChecked(device, new Array<GPUBufferDescriptor>(LANES).fill(descriptor), 'weight staging')
    return new WeightStaging(device, lanes)
  }

  private constructor(device: GPUDevice, lanes: readonly GPUBuffer[]) {
    this.device = device
    this.lanes = lanes
    this.laneBytes = lanes[0].size
    this.free = [...lanes]
  }

  /**
   * Ends when all is read; the copies come before whatever is submitted next. Where a read fails, when the others have ended:
   * the memory that they read into goes with the device.
   */
  async load(source: ByteSource, reads: readonly StagedRead[], target: GPUBuffer, signal?: AbortSignal): Promise<void> {
    const pieces: StagedRead[] = []
    for (const { from, at, size } of reads) {
      for (let done = 0; done < size; done += this.laneBytes) {
        pieces.push({ from: from + done, at: at + done, size: Math.min(this.laneBytes, size - done) })
      }
    }
    const failures: unknown[] = []
    const loadPiece = async (piece: StagedRead) => {
      const lane = await this.take()
      if (failures.length > 0) return this.give(lane)
      // Noted before the lane goes to the next one.
      const read = (bytes: Uint8Array) =>
        source.read(piece.from, bytes, signal).catch(error => {
          failures.push(error)
        })
      await this.fillAndSend(lane, piece, target, read)
    }
    await Promise.all(pieces.map(piece => loadPiece(piece).catch(error => failures.push(error))))
    if (failures.length > 0) throw failures[0]
  }

  /** When the GPU has taken over everything. */
  async close(): Promise<void> {
    const lanes = await Promise.all(this.lanes.map(() => this.take()))
    for (const lane of lanes) lane.destroy()
  }

  private async fillAndSend(
    lane: GPUBuffer,
    { at, size }: StagedRead,
    target: GPUBuffer,
    read: (bytes: Uint8Array) => Promise<void>,
  ): Promise<void> {
    const whole = Math.ceil(size / 4) * 4
    await read(new Uint8Array(lane.getMappedRange(0, whole)).subarray(0, size))
    lane.unmap()
    const encoder = this.device.createCommandEncoder()
    encoder.copyBufferToBuffer(lane, 0, target, at, whole)
    this.device.queue.submit([encoder.finish()])
    lane.mapAsync(mapMode.write).then(
      () => this.give(lane),
      error => this.lose(error),
    )
  }

  private take(): Promise<GPUBuffer> {
    if (this.lost !== null) return Promise.reject(this.lost)
    const lane = this.free.pop()
    if (lane !== undefined) return Promise.resolve(lane)
    return new Promise((resolve, reject) => this.waiting.push({ resolve, reject }))
  }

  private give(lane: GPUBuffer): void {
    const next = this.waiting.shift()
    if (next === undefined) this.free.push(lane)
    else next.resolve(lane)
  }

  private lose(error: unknown): void {
    this.lost = error
    for (const { reject } of this.waiting.splice(0)) reject(error)
  }
}
