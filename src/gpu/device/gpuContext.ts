// What every op builder needs: the device, the compiled kernels, and which arithmetic is asked for.
import type { KernelSet } from './kernel.js'
import type { GentleWait } from './readbackTimer.js'

/** What may be chosen per adapter without changing results by more than rounding. */
export interface Tuning {
  readonly WG: number // threads per mat-vec workgroup
  readonly TEAM: number // threads that share a row's sum there, where subgroups are not larger
  readonly ROWS: number // rows per team of threads there, no more than TEAM
  readonly WORKGROUPS: number // of a mat-vec that keep all processors busy: work for fewer is cut finer
  readonly LOADS: number // of a thread that are under way at once there
  readonly SPLITS: number // ranges of a decode attention
  readonly GROWTH: number // layers of a submission of a whole token, over those of the one before; 0: all are in one
  readonly TILE_TOKENS: number // tokens per tile of a mat-mul
  readonly PAIR_TILE: number // tokens of an expert per tile of its mat-muls
  readonly AHEAD: number // layers whose routers are asked before their turn, to read experts ahead
  readonly TRUST: number // the share of such guesses that must come true
  readonly TRUST_SPARE: number // the same where the disk has nothing better to do
}

export interface SubgroupSizes {
  readonly minSize: number
  readonly maxSize: number
}

export interface GpuContext {
  readonly device: GPUDevice
  readonly kernels: KernelSet
  readonly fast: boolean // int8 activations where weights are quantized
  readonly subgroups: SubgroupSizes | null
  readonly tensors: boolean // matrix units may be used (tensorMul.gpu.ts)
  readonly waits: GentleWait // for what is read back
  readonly tuning: Tuning
}

/** Lanes of every subgroup, 32 at most; 0 where there are more, or where that is not known beforehand. */
export function laneCount({ subgroups }: GpuContext): number {
  if (subgroups === null || subgroups.minSize !== subgroups.maxSize || subgroups.maxSize > 32) return 0
  return subgroups.maxSize
}

/** Threads that share one row's sum in the mat-vec kernels: a power of two no smaller than a subgroup. */
export function teamSize(gpu: GpuContext): number {
  return Math.max(gpu.tuning.TEAM, gpu.subgroups?.maxSize ?? 0)
}

export const HARDWARE_TUNING: Tuning = {
  WG: 256,
  TEAM: 32,
  ROWS: 4,
  WORKGROUPS: 128, // a large GPU has some 130 multiprocessors
  LOADS: 8,
  SPLITS: 128,
  GROWTH: 3,
  TILE_TOKENS: 64,
  PAIR_TILE: 32,
  AHEAD: 4,
  TRUST: 0.6,
  TRUST_SPARE: 0.3,
}
/** A CPU has few lanes and pays for every thread that waits at a barrier. */
export const SOFTWARE_TUNING: Tuning = {
  WG: 16,
  TEAM: 8,
  ROWS: 8,
  WORKGROUPS: 8,
  LOADS: 8,
  SPLITS: 2,
  GROWTH: 0,
  TILE_TOKENS: 16,
  PAIR_TILE: 16,
  AHEAD: 1,
  TRUST: 0.6,
  TRUST_SPARE: 0.3,
}

/** A power of two of threads for so many items: no less than a subgroup, no more than `most`. */
export function workgroupFor(gpu: GpuContext, items: number, most: number): number {
  const wanted = 2 ** Math.ceil(Math.log2(Math.max(1, items)))
  return Math.min(most, Math.max(wanted, 32, gpu.subgroups?.maxSize ?? 0))
}
