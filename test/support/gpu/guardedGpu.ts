// A device whose storage buffers have poisoned neighbours: every buffer lies inside a larger one, between two guards full of
// NaN. A kernel that reads past its buffer computes NaN, one that writes there is found by `broken`. This is what shows
// that kernels keep to their buffers where nobody checks their accesses (gpu/device/nodeGpu.ts).
const GUARD = 4096 // bytes; a multiple of what bindings are aligned to
const POISON = 0x7fc5a5a5 // a NaN, and as an index a wild one
const STORAGE = 0x80
const MAP_READ = 1
const COPY_SRC = 4
const COPY_DST = 8

export class GuardedGpu {
  readonly #sizes = new Map<GPUBuffer, number>() // as they were asked for
  #device: GPUDevice | null = null

  /** For the options of a device. */
  readonly onDevice = (device: GPUDevice): void => {
    this.#device = device
    this.#sizes.clear()
    const native = Object.getPrototypeOf(device) as GPUDevice
    const { queue } = device
    const { writeBuffer } = Object.getPrototypeOf(queue) as GPUQueue
    const guard = new Uint32Array(GUARD / 4).fill(POISON)
    Object.defineProperty(device, 'queue', { value: queue })
    queue.writeBuffer = (buffer, offset, ...rest) =>
      writeBuffer.call(queue, buffer, this.#shift(buffer, offset), ...rest)
    device.createBuffer = descriptor => {
      const { size, usage, mappedAtCreation } = descriptor
      if ((usage & STORAGE) === 0 || mappedAtCreation) return native.createBuffer.call(device, descriptor)
      const more = { size: size + 2 * GUARD, usage: usage | COPY_SRC | COPY_DST }
      const buffer = native.createBuffer.call(device, { ...descriptor, ...more })
      Object.defineProperty(buffer, 'size', { value: size })
      writeBuffer.call(queue, buffer, 0, guard)
      writeBuffer.call(queue, buffer, GUARD + size, guard)
      this.#sizes.set(buffer, size)
      const { destroy } = Object.getPrototypeOf(buffer) as GPUBuffer
      buffer.destroy = () => {
        this.#sizes.delete(buffer)
        return destroy.call(buffer)
      }
      return buffer
    }
    device.createBindGroup = descriptor => {
      const entries = [...descriptor.entries].map(entry => ({ ...entry, resource: this.#inside(entry.resource) }))
      return native.createBindGroup.call(device, { ...descriptor, entries })
    }
    device.createCommandEncoder = descriptor => {
      const encoder = native.createCommandEncoder.call(device, descriptor)
      const { copyBufferToBuffer } = Object.getPrototypeOf(encoder) as GPUCommandEncoder
      const copy = (from: GPUBuffer, fromOffset: number, to: GPUBuffer, toOffset: number, size: number) =>
        copyBufferToBuffer.call(encoder, from, this.#shift(from, fromOffset), to, this.#shift(to, toOffset), size)
      encoder.copyBufferToBuffer = copy as GPUCommandEncoder['copyBufferToBuffer']
      return encoder
    }
  }

  /** Labels of the buffers that somebody wrote beside. */
  async broken(): Promise<string[]> {
    const device = this.#device as GPUDevice
    const native = Object.getPrototypeOf(device) as GPUDevice
    const sizes = [...this.#sizes]
    if (sizes.length === 0) return []
    const size = sizes.length * 2 * GUARD
    const readback = native.createBuffer.call(device, { size, usage: MAP_READ | COPY_DST })
    const encoder = native.createCommandEncoder.call(device)
    for (const [i, [buffer, inner]] of sizes.entries()) {
      encoder.copyBufferToBuffer(buffer, 0, readback, i * 2 * GUARD, GUARD)
      encoder.copyBufferToBuffer(buffer, GUARD + inner, readback, (i * 2 + 1) * GUARD, GUARD)
    }
    device.queue.submit([encoder.finish()])
    await readback.mapAsync(MAP_READ)
    const words = new Uint32Array(readback.getMappedRange())
    const perBuffer = (2 * GUARD) / 4
    const isBroken = (i: number) => words.subarray(i * perBuffer, (i + 1) * perBuffer).some(word => word !== POISON)
    const labels = sizes.flatMap(([buffer], i) => (isBroken(i) ? [buffer.label] : []))
    readback.destroy()
    return labels
  }

  #shift(buffer: GPUBuffer, offset: number): number {
    return this.#sizes.has(buffer) ? offset + GUARD : offset
  }

  #inside(resource: GPUBindingResource): GPUBindingResource {
    if (!('buffer' in resource)) return resource
    const { buffer, offset = 0 } = resource
    const size = this.#sizes.get(buffer)
    return size === undefined ? resource : { buffer, offset: GUARD + offset, size: resource.size ?? size - offset }
  }
}
