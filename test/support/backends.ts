// The backends that model tests run on, each with what it promises. A backend joins all of these tests with one row.
import type { OpenModelOptions } from '#moeflux/engine/openEngine.js'
import './gpu/swiftShader.js'
import { type Band, EXACT_LOGITS, FAST_LOGITS, GOLDEN, KERNEL } from './ops/bands.js'

export interface BackendRow {
  readonly name: string
  readonly options: OpenModelOptions
  /** Per layer, against the goldens. */
  readonly layers: Band
  /** Logits end to end, against the goldens. */
  readonly logits: Band
  /** Greedy tokens and router picks equal the goldens'. */
  readonly sameTokens: boolean
  /** Perplexity against the goldens', relative. */
  readonly perplexity: number
  /** The state does not depend on how tokens were cut into calls: to the bit, or within the band. */
  readonly cuts: 'bits' | Band
  /** Runs on an emulated GPU here: tests do the same with fewer tokens and rounds. */
  readonly isSlow?: boolean
}

export const backends: readonly BackendRow[] = [
  {
    name: 'reference',
    options: { backend: 'reference' },
    layers: GOLDEN,
    logits: GOLDEN,
    sameTokens: true,
    perplexity: 0.001,
    cuts: 'bits',
  },
  {
    name: 'wasm exact',
    // Two that wait for each other on busy processors take twice as long: once is enough, below.
    options: { backend: 'wasm', precision: 'exact', threads: 1 },
    layers: KERNEL,
    logits: EXACT_LOGITS,
    sameTokens: true,
    perplexity: 0.001,
    cuts: 'bits',
  },
  {
    name: 'wasm fast',
    options: { backend: 'wasm', precision: 'fast', threads: 2 },
    layers: FAST_LOGITS,
    logits: FAST_LOGITS,
    sameTokens: false,
    perplexity: 0.01,
    cuts: 'bits',
  },
  {
    name: 'webgpu exact',
    options: { backend: 'webgpu', precision: 'exact' },
    layers: KERNEL,
    logits: EXACT_LOGITS,
    sameTokens: true,
    perplexity: 0.001,
    cuts: { cosine: 0.99999, maxDifference: 1e-3 },
    isSlow: true,
  },
  {
    name: 'webgpu fast',
    options: { backend: 'webgpu', precision: 'fast' },
    layers: FAST_LOGITS,
    logits: FAST_LOGITS,
    sameTokens: false,
    perplexity: 0.01,
    cuts: { cosine: 0.999, maxDifference: Number.POSITIVE_INFINITY },
    isSlow: true,
  },
]

/** For tests of state, whose rules no precision changes: the slow rows once. */
export const stateBackends = backends.filter(({ name }) => name !== 'webgpu fast')
