// A GPU for kernel tests: a device on SwiftShader, buffers filled from arrays, outputs that begin as NaN, and NaN beside all of
// them: `close` fails where a kernel wrote there.
import type { GpuContext, Tuning } from '#moeflux/gpu/device/gpuContext.js'
import { SOFTWARE_TUNING } from '#moeflux/gpu/device/gpuContext.js'
import { type DeviceOptions, type GpuDevice, openDevice } from '#moeflux/gpu/device/gpuDevice.js'
import { readMapped } from '#moeflux/gpu/device/gpuMemory.js'
import { KernelSet, storageBuffer } from '#moeflux/gpu/device/kernel.js'
import type { Op, StepSize } from '#moeflux/gpu/device/op.js'
import { GentleWait } from '#moeflux/gpu/device/readbackTimer.js'
import { Recorder } from '#moeflux/gpu/device/recorder.js'
import type { GpuFormat, MatrixPart } from '#moeflux/gpu/memory/matrixWeights.js'
import './swiftShader.js'
import { float32ToBfloat16 } from '#moeflux/model/floats.js'
import type { QuantizedWeights } from '#moeflux/ops/matmul/storedWeights.js'
import { GuardedGpu } from './guardedGpu.js'

const MAP_READ = 1
const COPY_DST = 8

export class GpuArena {
  readonly exact: GpuContext
  readonly fast: GpuContext

  static async open(options: DeviceOptions = {}, tuning: Partial<Tuning> = {}): Promise<GpuArena> {
    const guards = new GuardedGpu()
    return new GpuArena(await openDevice({ onDevice: guards.onDevice, ...options }), guards, tuning)
  }

  private constructor(
    readonly opened: GpuDevice,
    readonly guards: GuardedGpu,
    tuning: Partial<Tuning>,
  ) {
    const { device, subgroups, packedDot } = opened
    const kernels = new KernelSet(device, { SUBGROUPS: subgroups !== null, PACKED_DOT: packedDot })
    const common = {
      device,
      kernels,
      subgroups,
      tensors: opened.tensors,
      waits: new GentleWait(null),
      tuning: { ...SOFTWARE_TUNING, ...tuning },
    }
    this.exact = { ...common, fast: false }
    this.fast = { ...common, fast: true }
  }

  get device(): GPUDevice {
    return this.opened.device
  }

  put(values: Float32Array | Uint32Array | Uint8Array): GPUBuffer {
    const buffer = storageBuffer(this.device, values.byteLength, 'input')
    const padded = new Uint8Array(Math.ceil(values.byteLength / 4) * 4)
    padded.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))
    this.device.queue.writeBuffer(buffer, 0, padded)
    return buffer
  }

  /** An output: every element is NaN. */
  poisoned(length: number): GPUBuffer {
    return this.put(new Float32Array(length).fill(Number.NaN))
  }

  /** The uniform block that says how many tokens and runs a step has. */
  step(tokens: number, runs = 1): GPUBuffer {
    const buffer = this.device.createBuffer({ size: 16, usage: 0x40 | COPY_DST })
    this.device.queue.writeBuffer(buffer, 0, new Uint32Array([tokens, runs, 0, 0]))
    return buffer
  }

  async run(op: Op, size: Partial<StepSize> = {}): Promise<void> {
    const recorder = new Recorder(this.device, null)
    op(recorder, { tokens: 1, runs: 1, ...size })
    recorder.submit()
  }

  async floats(buffer: GPUBuffer, length: number): Promise<Float32Array> {
    return new Float32Array(await this.#bytes(buffer, length * 4), 0, length)
  }

  async words(buffer: GPUBuffer, length: number): Promise<Uint32Array> {
    return new Uint32Array(await this.#bytes(buffer, length * 4), 0, length)
  }

  /** A matrix as the resident weights lay it out: weight, scales, biases in one buffer. */
  matrix(weights: QuantizedWeights, out = 0): MatrixPart {
    const { part, bytes } = packMatrix(weights, out)
    return { ...part, buffer: this.put(bytes) }
  }

  async close(): Promise<void> {
    const broken = await this.guards.broken()
    this.opened.close()
    if (broken.length > 0) throw new Error(`kernels wrote beside ${broken.join(', ')}`)
  }

  async #bytes(buffer: GPUBuffer, size: number): Promise<ArrayBuffer> {
    const readback = this.device.createBuffer({ size, usage: MAP_READ | COPY_DST })
    const encoder = this.device.createCommandEncoder()
    encoder.copyBufferToBuffer(buffer, 0, readback, 0, size)
    this.device.queue.submit([encoder.finish()])
    const bytes = await readMapped(readback, size)
    readback.destroy()
    this.opened.check()
    return bytes
  }
}

/** A matrix's bytes back to back, each part at a multiple of 256, and where they lie. */
export function packMatrix(
  weights: QuantizedWeights,
  out: number,
): { part: Omit<MatrixPart, 'buffer'>; bytes: Uint8Array } {
  const { rows, cols, bits, group, packed } = weights
  const halves = (values: ArrayLike<number>) =>
    new Uint8Array(Uint16Array.from(Array.from(values), float32ToBfloat16).buffer)
  const parts = [new Uint8Array(packed.buffer), halves(weights.scales), halves(weights.biases)]
  const at = [0, 0, 0]
  let size = 0
  for (const [i, bytes] of parts.entries()) {
    at[i] = size
    size = Math.ceil((size + bytes.length) / 256) * 256
  }
  const all = new Uint8Array(size)
  for (const [i, bytes] of parts.entries()) all.set(bytes, at[i])
  const format: GpuFormat = { bits, group, f16: false }
  const segments = [{ rows, weight: at[0], scales: at[1], biases: at[2], out }]
  return { part: { format, cols, segments }, bytes: all }
}
