import type { SimdLevel } from './kernels.js'

/** Switches for tests and measurements. */
export interface WasmInternals {
  readonly simd?: SimdLevel
  readonly bankLimit?: number // bytes per memory
  readonly chunkTokens?: number
  readonly commonTokens?: number // of GuessVocabulary
  readonly gate?: SharedArrayBuffer // of a StepGate
}
