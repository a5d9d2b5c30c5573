// What every op builder needs: the device, the compiled kernels, and which arithmetic is asked for.
import type { KernelSet } from './kernel.js'

export interface GpuContext {
  readonly device: GPUDevice
  readonly kernels: KernelSet
  readonly fast: boolean // int8 activations where weights are quantized
  readonly subgroups: { readonly maxSize: number } | null
}

/** Threads that share one row's sum in the mat-vec kernels: a power of two no smaller than a subgroup. */
export function teamSize(gpu: GpuContext): number {
  return Math.max(32, gpu.subgroups?.maxSize ?? 0)
}
