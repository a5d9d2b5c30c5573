// One emulated GPU for all models that a process opens: its compiler takes two seconds for a model's kernels, and most tests open
// the same few models. Whoever asks for a device gets one that looks like its own: closing it destroys its buffers and nothing
// else, and a kernel that was compiled for anybody is there. Tests of devices themselves ask for `ownDevices`.

interface Shared {
  readonly device: GPUDevice
  readonly pipelines: Map<string, Promise<GPUComputePipeline>> // by the shader's text, which decides the layout too
}

/** Stands for a module until somebody needs it compiled. */
interface Text {
  readonly code: string
  getCompilationInfo(): Promise<GPUCompilationInfo>
}

type Create = (options: readonly string[]) => GPU

let sharing = true

/** From here on every device is one, until the function is called that this returns. */
export function ownDevices(): () => void {
  sharing = false
  return () => {
    sharing = true
  }
}

/** Dawn's entry point, but for sharing. */
export function createShared(create: Create): Create {
  const known = new Map<string, GPU>()
  return options => {
    if (!sharing) return create(options)
    const key = options.join()
    let gpu = known.get(key)
    if (gpu === undefined) {
      gpu = shareDevices(create(options))
      known.set(key, gpu)
    }
    return gpu
  }
}

function shareDevices(gpu: GPU): GPU {
  const known = new Map<string, Promise<Shared>>()
  const requestAdapter = gpu.requestAdapter.bind(gpu)
  gpu.requestAdapter = async options => {
    const adapter = await requestAdapter(options)
    if (adapter === null) return null
    const requestDevice = adapter.requestDevice.bind(adapter)
    adapter.requestDevice = async descriptor => {
      const key = JSON.stringify(descriptor)
      let shared = known.get(key)
      if (shared === undefined) {
        shared = requestDevice(descriptor).then(device => ({ device, pipelines: new Map() }))
        known.set(key, shared)
        shared.catch(() => known.delete(key))
      }
      return share(await shared)
    }
    return adapter
  }
  return gpu
}

function share({ device, pipelines }: Shared): GPUDevice {
  const buffers: GPUBuffer[] = []
  const leave: (() => void)[] = []
  let gone = false
  const lost = new Promise<GPUDeviceLostInfo>(resolve => {
    const info = { reason: 'destroyed', message: 'Device was destroyed.' } as GPUDeviceLostInfo
    leave.push(() => resolve(info))
  })
  // What comes after the end is dropped, as a lost device drops it; a complaint would reach those who share the device.
  const queue = facade(device.queue, {
    submit: (commands: readonly GPUCommandBuffer[]) => gone || device.queue.submit(commands),
    writeBuffer: (...args: Parameters<GPUQueue['writeBuffer']>) => gone || device.queue.writeBuffer(...args),
  })
  return facade(device, {
    queue,
    lost: Promise.race([lost, device.lost]),
    createBuffer(descriptor: GPUBufferDescriptor) {
      const buffer = device.createBuffer(descriptor)
      buffers.push(buffer)
      return buffer
    },
    createShaderModule: ({ code }: GPUShaderModuleDescriptor): Text => ({
      code,
      getCompilationInfo: () => device.createShaderModule({ code }).getCompilationInfo(),
    }),
    createComputePipelineAsync(descriptor: GPUComputePipelineDescriptor) {
      const { code } = descriptor.compute.module as unknown as Text
      let pipeline = pipelines.get(code)
      if (pipeline === undefined) {
        const module = device.createShaderModule({ label: descriptor.label, code })
        pipeline = device.createComputePipelineAsync({ ...descriptor, compute: { ...descriptor.compute, module } })
        pipelines.set(code, pipeline)
        pipeline.catch(() => pipelines.delete(code))
      }
      return pipeline
    },
    addEventListener(type: 'uncapturederror', listener: (event: Event) => void) {
      device.addEventListener(type, listener)
      leave.push(() => device.removeEventListener(type, listener))
    },
    destroy() {
      gone = true
      for (const buffer of buffers.splice(0)) buffer.destroy()
      for (const step of leave.splice(0)) step()
    },
  })
}

/** An object whose prototype has some members of its own, and otherwise the real one's. */
function facade<T extends object>(real: T, own: object): T {
  const prototype = new Proxy(own, {
    get(target, key) {
      if (Object.hasOwn(target, key)) return Reflect.get(target, key)
      const value = Reflect.get(real, key, real)
      return typeof value === 'function' ? value.bind(real) : value
    },
  })
  return Object.create(prototype)
}
