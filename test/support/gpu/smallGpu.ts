// A GPU of a size that a test chooses: counts what its device creates and has destroyed again, and refuses what goes
// beyond, the way drivers do: an error in the scope, or an exception where the memory was to be mapped at once.
interface Scope {
  readonly filter: GPUErrorFilter
  error: { readonly message: string } | null
}

export class SmallGpu {
  live = 0
  peak = 0
  refusals = 0
  readonly byLabel = new Map<string, number>() // bytes ever created

  constructor(public limit = Number.POSITIVE_INFINITY) {}

  /** For the options of a device. */
  readonly onDevice = (device: GPUDevice): void => {
    this.live = 0 // another device has nothing yet, and the one before was destroyed
    const native = Object.getPrototypeOf(device) as GPUDevice
    const scopes: Scope[] = []
    device.pushErrorScope = filter => {
      scopes.push({ filter, error: null })
      return native.pushErrorScope.call(device, filter)
    }
    device.popErrorScope = async () => {
      const scope = scopes.pop()
      const error = await native.popErrorScope.call(device)
      return (scope?.error as GPUError | null) ?? error
    }
    device.createBuffer = descriptor => {
      const { size, label = '', mappedAtCreation } = descriptor
      if (this.live + size > this.limit) {
        this.refusals++
        const message = `${size} bytes are more than are left of ${this.limit}`
        if (mappedAtCreation) throw new RangeError(message)
        const scope = scopes.findLast(({ filter }) => filter === 'out-of-memory')
        if (scope === undefined) throw new Error(`nobody asked whether ${label} fits`)
        scope.error ??= { message }
        return native.createBuffer.call(device, { ...descriptor, size: 16 })
      }
      const buffer = native.createBuffer.call(device, descriptor)
      this.live += size
      this.peak = Math.max(this.peak, this.live)
      this.byLabel.set(label, (this.byLabel.get(label) ?? 0) + size)
      let isGone = false
      const { destroy } = Object.getPrototypeOf(buffer) as GPUBuffer
      buffer.destroy = () => {
        if (!isGone) this.live -= size
        isGone = true
        return destroy.call(buffer)
      }
      return buffer
    }
  }
}
