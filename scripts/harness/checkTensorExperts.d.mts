import type { QuantizedWeights } from '#moeflux/compute/reference/weights.js'
import type { GpuContext } from '#moeflux/compute/webgpu/gpuContext.js'
import type { Op } from '#moeflux/compute/webgpu/op.js'
import type { ExpertTile } from '#moeflux/compute/webgpu/tensorExperts.js'

export interface ExpertTools {
  /** A module of `compute`. */
  load(name: string): Promise<unknown>
  readonly gpu: GpuContext
  put(values: Float32Array | Uint32Array | Uint8Array): GPUBuffer
  step(tokens: number): GPUBuffer
  run(op: Op, tokens: number): Promise<void>
  read(buffer: GPUBuffer, length: number): Promise<Float32Array>
  random(): number
  matVec(weights: QuantizedWeights, x: Float32Array): Float32Array
  report(what: string, worst: number, problem: string): void
}

export interface ExpertSizes {
  readonly hidden: number
  readonly width: number
  readonly group: number
  readonly experts: number
  readonly k: number
  readonly counts: readonly number[] // of tokens
  readonly most: number // of tokens that buffers are made for
  readonly tiles?: readonly Omit<ExpertTile, 'most'>[] // the backend's own where none are given
}

export function checkExperts(tools: ExpertTools, sizes?: ExpertSizes): Promise<void>
