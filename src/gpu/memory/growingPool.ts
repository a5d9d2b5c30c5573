// One GPU buffer per layer, all with the same number of equal cells, that grow together. A cell is a state slot or a K/V
// page; which cell belongs to whom is decided elsewhere. Growing copies on the GPU and moves the generation on, so that
// bind groups are made again.
import { OutOfMemoryError } from '../../base/errors.js'
import { bufferUsage } from '../device/gpuFlags.js'
import { createChecked } from '../device/gpuMemory.js'

export interface GrowingPoolOptions {
  readonly what: string // for messages: 'recurrent state'
  readonly layers: readonly number[]
  readonly cellBytes: number
  readonly initialCells: number
  readonly maxBindingBytes: number
}

/** What a pool of at least so many cells takes when it is made for them, with the cell aside. */
export function growingBytes(
  { layers, cellBytes, initialCells, maxBindingBytes }: Omit<GrowingPoolOptions, 'what'>,
  cells: number,
): number {
  const made = Math.min(Math.floor(maxBindingBytes / cellBytes), Math.max(initialCells, cells))
  return (made * layers.length + 1) * cellBytes
}

interface Created {
  readonly cells: number
  readonly made: readonly GPUBuffer[] // by layer; one more, aside, the first time
}

export class GrowingPool {
  generation = 0
  cells = 0
  /** Gives so many bytes of other memory back; false: there is none that could be given. */
  makeRoom: (bytes: number) => Promise<boolean> = async () => false
  private readonly device: GPUDevice
  private readonly options: GrowingPoolOptions
  private readonly buffers = new Map<number, GPUBuffer>()
  private refusedAt = -1 // cells, when more were offered and the GPU gave none
  private aside: GPUBuffer | null = null // a cell: a buffer cannot be copied to itself, so the bytes take a step aside

  constructor(device: GPUDevice, options: GrowingPoolOptions) {
    this.device = device
    this.options = options
  }

  get bytes(): number {
    return this.cells * this.options.cellBytes * this.options.layers.length
  }

  get maxCells(): number {
    return Math.floor(this.options.maxBindingBytes / this.options.cellBytes)
  }

  buffer(layer: number): GPUBuffer {
    return this.buffers.get(layer) as GPUBuffer
  }

  /** Makes room for `cells` cells at least; throws OutOfMemoryError and then nothing has changed. */
  async reserve(cells: number): Promise<void> {
    if (cells <= this.cells) return
    const { what, cellBytes } = this.options
    if (cells > this.maxCells) {
      const limit = this.options.maxBindingBytes
      throw new OutOfMemoryError(
        what,
        cells * cellBytes,
        `a binding of this GPU holds at most ${limit} bytes per layer`,
      )
    }
    // Twice as many where they are given, else some more, else some more instead of experts, else what must be.
    const some = this.someFor(cells)
    const twice = Math.min(this.maxCells, Math.max(some, this.cells * 2))
    this.become(
      (await this.tryCreate(twice)) ??
        (await this.tryCreate(some)) ??
        (await this.createInstead(some)) ??
        (await this.create(cells)),
    )
  }

  /** The same where the GPU has memory left that nobody has to give back, and nothing where not. */
  async offer(cells: number): Promise<void> {
    if (cells <= this.cells || cells > this.maxCells || this.refusedAt === this.cells) return
    const created = await this.tryCreate(this.someFor(cells))
    if (created === null) this.refusedAt = this.cells
    else this.become(created)
  }

  private someFor(cells: number): number {
    return Math.min(this.maxCells, Math.max(this.options.initialCells, cells, Math.ceil(this.cells * 1.25)))
  }

  /** Moves into buffers that are larger. */
  private become({ cells, made }: Created): void {
    const { layers, cellBytes } = this.options
    this.aside ??= made[layers.length]
    const encoder = this.device.createCommandEncoder()
    for (const [i, layer] of layers.entries()) {
      const old = this.buffers.get(layer)
      if (old !== undefined) encoder.copyBufferToBuffer(old, 0, made[i], 0, this.cells * cellBytes)
    }
    this.device.queue.submit([encoder.finish()])
    for (const [i, layer] of layers.entries()) {
      this.buffers.get(layer)?.destroy()
      this.buffers.set(layer, made[i])
    }
    this.cells = cells
    this.generation++
  }

  private async tryCreate(cells: number): Promise<Created | null> {
    return this.create(cells).catch(error => {
      if (error instanceof OutOfMemoryError) return null
      throw error
    })
  }

  /** In memory that others give back for it. */
  private async createInstead(cells: number): Promise<Created | null> {
    const { layers, cellBytes } = this.options
    while (await this.makeRoom(cells * cellBytes * layers.length)) {
      const created = await this.tryCreate(cells)
      if (created !== null) return created
    }
    return null
  }

  private async create(cells: number): Promise<Created> {
    const { what, layers, cellBytes } = this.options
    const usage = bufferUsage.storage | bufferUsage.copySrc | bufferUsage.copyDst
    const descriptors = layers.map(layer => ({ label: `${what} ${layer}`, size: cells * cellBytes, usage }))
    const aside = { label: `${what}, aside`, size: cellBytes, usage: bufferUsage.copySrc | bufferUsage.copyDst }
    const all = this.aside === null ? [...descriptors, aside] : descriptors
    return { cells, made: await createChecked(this.device, all, what) }
  }

  /** Copies ranges of a cell to another one, in every layer. */
  copyCell(from: number, to: number, ranges: readonly { offset: number; size: number }[]): void {
    const encoder = this.device.createCommandEncoder()
    const { layers, cellBytes } = this.options
    const aside = this.aside as GPUBuffer
    for (const layer of layers) {
      const buffer = this.buffer(layer)
      for (const { offset, size } of ranges) {
        if (size === 0) continue
        encoder.copyBufferToBuffer(buffer, from * cellBytes + offset, aside, offset, size)
        encoder.copyBufferToBuffer(aside, offset, buffer, to * cellBytes + offset, size)
      }
    }
    this.device.queue.submit([encoder.finish()])
  }
}
