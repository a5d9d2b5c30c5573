import type { GpuContext } from '#moeflux/gpu/device/gpuContext.js'
import type { Op } from '#moeflux/gpu/device/op.js'
import type { QuantizedWeights } from '#moeflux/ops/matmul/storedWeights.js'
import type { ExpertTile } from '#moeflux/ops/moe/tensorExperts.gpu.js'

export interface ExpertTools {
  /** A module of the build, by its path in dist. */
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
