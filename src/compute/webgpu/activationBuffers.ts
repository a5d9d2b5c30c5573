// Rows of activations as an input of matrix products: float32, and in fast precision room for their packed form.
import type { GpuContext } from './gpuContext.js'
import { storageBuffer } from './kernel.js'

export interface ActivationBuffers {
  readonly values: GPUBuffer // [rows, width] float32
  readonly packed: GPUBuffer // [rows, width / 4] four signed bytes; tiny in exact precision
  readonly scales: GPUBuffer // [rows, width / 32] scale, scale * sum
}

export function activationBuffers(gpu: GpuContext, rows: number, width: number, label: string): ActivationBuffers {
  return {
    values: storageBuffer(gpu.device, rows * width * 4, label),
    packed: storageBuffer(gpu.device, gpu.fast ? rows * width : 16, `${label} packed`),
    scales: storageBuffer(gpu.device, gpu.fast ? (rows * width) / 4 : 16, `${label} scales`),
  }
}
