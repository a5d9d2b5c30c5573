// What every op builder needs: the device, the compiled kernels, and which arithmetic is asked for.
import type { KernelSet } from './kernel.js'

/** What may be chosen per adapter without changing results by more than rounding. */
export interface Tuning {
  readonly WG: number // threads per mat-vec workgroup
  readonly ROWS: number // rows per team of threads there
  readonly SPLITS: number // ranges of a decode attention
}

export interface GpuContext {
  readonly device: GPUDevice
  readonly kernels: KernelSet
  readonly fast: boolean // int8 activations where weights are quantized
  readonly subgroups: { readonly maxSize: number } | null
  readonly tuning: Tuning
}

/** Threads that share one row's sum in the mat-vec kernels: a power of two no smaller than a subgroup. */
export function teamSize(gpu: GpuContext): number {
  return Math.max(32, gpu.subgroups?.maxSize ?? 0)
}
