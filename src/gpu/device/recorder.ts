// Records dispatches into command buffers. In timing mode every dispatch gets a compute pass of its own with two
// timestamps; otherwise one pass holds all of them, which is what makes a dispatch cheap.
import type { CommandList } from './commandList.js'
import { bufferUsage, mapMode } from './gpuFlags.js'
import type { Kernel } from './kernel.js'

export interface KernelTime {
  readonly label: string
  readonly count: number
  readonly ms: number
}

const QUERIES = 2048

export class Recorder {
  private readonly device: GPUDevice
  private readonly profiler: Profiler | null
  private encoder: GPUCommandEncoder | null = null
  private pass: GPUComputePassEncoder | null = null
  private readonly list: CommandList | null

  /** `list`: gets all that is recorded. */
  constructor(device: GPUDevice, profiler: Profiler | null, list: CommandList | null = null) {
    this.device = device
    this.profiler = profiler
    this.list = list
  }

  dispatch(kernel: Kernel, group: GPUBindGroup, x: number, y = 1, z = 1, label = kernel.name): void {
    if (x === 0 || y === 0 || z === 0) return
    this.encoder ??= this.device.createCommandEncoder()
    if (this.profiler !== null) {
      const timestampWrites = this.profiler.next(label)
      const pass = this.encoder.beginComputePass(timestampWrites ? { timestampWrites } : {})
      pass.setPipeline(kernel.pipeline)
      pass.setBindGroup(0, group)
      pass.dispatchWorkgroups(x, y, z)
      pass.end()
      return
    }
    this.list?.dispatch({ pipeline: kernel.pipeline, group, x, y, z })
    this.pass ??= this.encoder.beginComputePass()
    this.pass.setPipeline(kernel.pipeline)
    this.pass.setBindGroup(0, group)
    this.pass.dispatchWorkgroups(x, y, z)
  }

  copy(from: GPUBuffer, fromOffset: number, to: GPUBuffer, toOffset: number, size: number): void {
    this.endPass()
    this.list?.copy({ from, fromOffset, to, toOffset, size })
    this.encoder ??= this.device.createCommandEncoder()
    this.encoder.copyBufferToBuffer(from, fromOffset, to, toOffset, size)
  }

  /** The recorded commands, or null where there are none. */
  finish(): GPUCommandBuffer | null {
    this.endPass()
    const encoder = this.encoder
    this.encoder = null
    if (encoder === null) return null
    this.profiler?.resolve(encoder)
    return encoder.finish()
  }

  submit(): void {
    const commands = this.finish()
    if (commands !== null) this.device.queue.submit([commands])
  }

  private endPass(): void {
    this.pass?.end()
    this.pass = null
  }
}

/** Sums GPU time by label. `collect` must follow each submit before more than 1024 dispatches are recorded. */
export class Profiler {
  private readonly querySet: GPUQuerySet
  private readonly resolved: GPUBuffer
  private readonly readback: GPUBuffer
  private readonly totals = new Map<string, { count: number; nanoseconds: number }>()
  private labels: string[] = []

  constructor(device: GPUDevice) {
    this.querySet = device.createQuerySet({ type: 'timestamp', count: QUERIES })
    this.resolved = device.createBuffer({ size: QUERIES * 8, usage: bufferUsage.queryResolve | bufferUsage.copySrc })
    this.readback = device.createBuffer({ size: QUERIES * 8, usage: bufferUsage.mapRead | bufferUsage.copyDst })
  }

  next(label: string): GPUComputePassTimestampWrites | null {
    const index = this.labels.length * 2
    if (index + 1 >= QUERIES) return null
    this.labels.push(label)
    return { querySet: this.querySet, beginningOfPassWriteIndex: index, endOfPassWriteIndex: index + 1 }
  }

  resolve(encoder: GPUCommandEncoder): void {
    if (this.labels.length === 0) return
    const count = this.labels.length * 2
    encoder.resolveQuerySet(this.querySet, 0, count, this.resolved, 0)
    encoder.copyBufferToBuffer(this.resolved, 0, this.readback, 0, count * 8)
  }

  async collect(): Promise<void> {
    const labels = this.labels
    this.labels = []
    if (labels.length === 0) return
    await this.readback.mapAsync(mapMode.read)
    const times = new BigUint64Array(this.readback.getMappedRange())
    for (const [i, label] of labels.entries()) {
      const total = this.totals.get(label) ?? { count: 0, nanoseconds: 0 }
      total.count++
      total.nanoseconds += Number(times[2 * i + 1] - times[2 * i])
      this.totals.set(label, total)
    }
    this.readback.unmap()
  }

  times(): KernelTime[] {
    return [...this.totals]
      .map(([label, { count, nanoseconds }]) => ({ label, count, ms: nanoseconds / 1e6 }))
      .sort((a, b) => b.ms - a.ms)
  }

  reset(): void {
    this.totals.clear()
  }
}
