// A compiled compute pipeline and the bind groups made for it. Layouts are read off the shader's own `@binding` lines,
// so that a host wrapper lists buffers in that order and cannot disagree with the text.
import { BackendUnavailableError, messageOf } from '../../base/errors.js'
import { bufferUsage, SHADER_STAGE_COMPUTE } from './gpuFlags.js'
import { type ShaderConstants, type ShaderName, shaderSource } from './shaderSource.js'

export interface BufferSlice {
  readonly buffer: GPUBuffer
  readonly offset: number // a multiple of 256
  readonly size: number
}

export type Binding = GPUBuffer | BufferSlice

export interface Kernel {
  readonly name: string
  readonly pipeline: GPUComputePipeline
  /** Buffers in the order of the shader's bindings; null: one that this variant does not have. */
  bind(buffers: readonly (Binding | null)[]): GPUBindGroup
}

/** A GPU that cannot run a kernel for a model's shapes, which need more threads or workgroup memory than it has. */
export class KernelError extends BackendUnavailableError {
  constructor(name: string, cause: unknown) {
    const why = messageOf(cause)
    super('webgpu', `this GPU cannot run kernel ${name} for this model, backend wasm can: ${why}`, { cause })
  }
}

/** Compiles each variant once, all in parallel. Ask for kernels first, then await `ready`. */
export class KernelSet {
  private readonly device: GPUDevice
  private readonly pending = new Map<string, Promise<Kernel>>()
  private compiled = 0

  constructor(
    device: GPUDevice,
    readonly common: ShaderConstants,
    readonly onProgress?: (compiled: number, total: number) => void,
  ) {
    this.device = device
  }

  get(name: ShaderName, constants: ShaderConstants = {}): Promise<Kernel> {
    const all = { ...this.common, ...constants }
    const key = `${name} ${JSON.stringify(all)}`
    let kernel = this.pending.get(key)
    if (kernel === undefined) {
      kernel = this.compile(name, all)
      this.pending.set(key, kernel)
      kernel.catch(() => {}) // whoever awaits it sees the error
    }
    return kernel
  }

  private async compile(name: ShaderName, constants: ShaderConstants): Promise<Kernel> {
    const device = this.device
    const code = shaderSource(name, constants)
    const bindings = bindingsOf(code)
    const layout = device.createBindGroupLayout({ label: name, entries: bindings })
    const pipeline = await device
      .createComputePipelineAsync({
        label: name,
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module: device.createShaderModule({ label: name, code }), entryPoint: 'main' },
      })
      .catch(error => {
        throw new KernelError(name, error)
      })
    this.compiled++
    this.onProgress?.(this.compiled, this.pending.size)
    return {
      name,
      pipeline,
      bind(given) {
        const buffers = given.filter(buffer => buffer !== null)
        const { length } = bindings
        if (buffers.length !== length) throw new Error(`${name} has ${length} bindings, got ${buffers.length}`)
        return device.createBindGroup({
          label: name,
          layout,
          entries: buffers.map((buffer, i) => ({
            binding: bindings[i].binding,
            resource: 'buffer' in buffer ? buffer : { buffer },
          })),
        })
      },
    }
  }
}

/** In the order of their numbers, some of which a variant may leave out. */
function bindingsOf(code: string): GPUBindGroupLayoutEntry[] {
  const entries: GPUBindGroupLayoutEntry[] = []
  for (const match of code.matchAll(/@binding\((\d+)\)\s*var<\s*(uniform|storage\s*,\s*(read_write|read))\s*>/g)) {
    const type = match[2] === 'uniform' ? 'uniform' : match[3] === 'read' ? 'read-only-storage' : 'storage'
    entries[Number(match[1])] = { binding: Number(match[1]), visibility: SHADER_STAGE_COMPUTE, buffer: { type } }
  }
  return entries.filter(entry => entry !== undefined)
}

/** A small constant buffer. */
export function uniformBuffer(device: GPUDevice, values: ArrayLike<number>, label: string): GPUBuffer {
  const size = Math.max(16, Math.ceil(values.length / 4) * 16)
  const buffer = device.createBuffer({ label, size, usage: bufferUsage.uniform, mappedAtCreation: true })
  new Uint32Array(buffer.getMappedRange()).set(Array.from(values))
  buffer.unmap()
  return buffer
}

export function storageBuffer(device: GPUDevice, size: number, label: string): GPUBuffer {
  return device.createBuffer({
    label,
    size: storageBytes(size),
    usage: bufferUsage.storage | bufferUsage.copySrc | bufferUsage.copyDst,
  })
}

/** What a storage buffer for so many bytes takes. */
export function storageBytes(size: number): number {
  return Math.max(16, Math.ceil(size / 16) * 16)
}

/** Makes a storage buffer, or stands for one where sizes are only counted. */
export type MakeBuffer<B> = (size: number, label: string) => B

/** What the storage buffers come to that `lay` asks for. */
export function countBytes(lay: (make: MakeBuffer<null>) => unknown): number {
  let bytes = 0
  lay(size => {
    bytes += storageBytes(size)
    return null
  })
  return bytes
}
