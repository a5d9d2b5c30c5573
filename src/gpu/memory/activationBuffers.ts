// Rows of activations as an input of matrix products: float32, and in fast precision room for their packed form.
import type { GpuContext } from '../device/gpuContext.js'
import { type MakeBuffer, storageBuffer } from '../device/kernel.js'

export interface ActivationBuffers<B = GPUBuffer> {
  readonly values: B // [rows, width] float32
  readonly packed: B // [rows, width] signed bytes, or half floats; tiny in exact precision
  readonly scales: B // [rows, width / 32] scale, scale * sum
}

export function activationBuffers(gpu: GpuContext, rows: number, width: number, label: string): ActivationBuffers {
  return layActivations((size, name) => storageBuffer(gpu.device, size, name), gpu.fast, rows, width, label)
}

export function layActivations<B>(
  make: MakeBuffer<B>,
  fast: boolean,
  rows: number,
  width: number,
  label: string,
): ActivationBuffers<B> {
  return {
    values: make(rows * width * 4, label),
    packed: make(fast ? rows * width * 2 : 16, `${label} packed`),
    scales: make(fast ? (rows * width) / 4 : 16, `${label} scales`),
  }
}
