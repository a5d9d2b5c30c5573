import type { GpuContext } from '#moeflux/gpu/device/gpuContext.js'
import type { Op } from '#moeflux/gpu/device/op.js'

export interface AttentionSizes {
  readonly numHeads: number
  readonly numKvHeads: number
  readonly headDim: number
  readonly outputGate?: boolean
  readonly sinks?: boolean
  readonly window?: number
}

export interface AttentionTools {
  /** A module of the build, by its path in dist. */
  load(name: string): Promise<unknown>
  readonly gpu: GpuContext
  put(values: Float32Array | Uint32Array): GPUBuffer
  step(tokens: number, runs: number): GPUBuffer
  run(op: Op, tokens: number, runs: number): Promise<void>
  read(buffer: GPUBuffer, length: number): Promise<Float32Array>
  randomFloats(length: number, scale: number): Float32Array
  report(what: string, worst: number, problem: string, band: number): void
}

export function checkAttention(
  tools: AttentionTools,
  cases?: {
    readonly shapes: readonly AttentionSizes[]
    readonly plans: readonly (readonly { readonly past: number; readonly count: number }[])[]
    readonly wrongs: readonly number[] // that are not finite
  },
): Promise<void>
