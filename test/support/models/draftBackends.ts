// Backends opened with a model's head for drafts. A backend joins the tests of drafts with one row: with the demo model for what it
// computes, with that or a small one for what becomes of states.
import type { Backend, BackendOptions } from '#moeflux/backends/backend.js'
import { openReferenceBackend } from '#moeflux/backends/reference/referenceBackend.js'
import { openWasmBackend } from '#moeflux/backends/wasm/wasmBackend.js'
import { openWebgpuBackend } from '#moeflux/backends/webgpu/open/openWebgpuBackend.js'
import { openNodeFolder } from '#moeflux/files/nodeFolder.js'
import { openPacked } from '#moeflux/files/packed/openPacked.js'
import type { PackedModel } from '#moeflux/files/packed/packedModel.js'
import { slotLayout } from '#moeflux/gpu/memory/slotLayout.js'
import { faultModel } from '../faults/faultBackends.js'
import { faultShape } from '../faults/faultShape.js'
import { type Band, FAST_LOGITS, GOLDEN, KERNEL } from '../ops/bands.js'
import { demoModel } from './models.js'
import { openTiered } from './tieredBackend.js'
import '../gpu/swiftShader.js'

export interface DraftRow {
  readonly name: string
  open(packed: PackedModel, options: BackendOptions): Promise<Backend>
  readonly options: Pick<BackendOptions, 'precision' | 'threads'>
  /** What it is opened with; default the demo model. */
  readonly model?: () => Promise<PackedModel>
}

export interface GoldenRow extends DraftRow {
  readonly prompts: readonly number[]
  readonly rows: readonly [from: number, end: number] // of those of a prompt that guesses are known behind
  readonly text: number // tokens of greedy text in rounds; 0: none, and no more of a prompt than the rows need
  /** The head's logits, keys and values against the goldens. */
  readonly band: Band
  /** Guesses and greedy text equal the goldens'. */
  readonly sameTokens: boolean
}

export interface StateRow extends DraftRow {
  readonly kept: readonly number[] // of four tokens of a step, by sequence
  /** What two ways to the same state may differ by; default nothing. */
  readonly rounding?: Band
}

const reference = { name: 'reference', open: openReferenceBackend, options: { precision: 'exact' } } as const
const wasm = {
  name: 'wasm exact',
  open: openWasmBackend,
  options: { precision: 'exact', threads: 2 },
} as const
const wasmFast = { name: 'wasm fast', open: openWasmBackend, options: { precision: 'fast', threads: 2 } } as const

const few = { prompts: [0], rows: [2, 4], text: 8 } as const
/** An emulated GPU takes a second for a few tokens. */
const onGpu = { open: openWebgpuBackend, prompts: [0] }

/** With the demo model. */
export const goldenRows: readonly GoldenRow[] = [
  { ...reference, ...few, band: GOLDEN, sameTokens: true },
  { ...wasm, prompts: [0, 2], rows: [0, 8], text: 30, band: KERNEL, sameTokens: true },
  { ...wasmFast, ...few, band: FAST_LOGITS, sameTokens: false },
]

export const gpuGoldenRows: readonly GoldenRow[] = [
  {
    ...onGpu,
    name: 'webgpu exact',
    options: { precision: 'exact' },
    rows: [3, 4],
    text: 5,
    band: KERNEL,
    sameTokens: true,
  },
  {
    ...onGpu,
    name: 'webgpu fast',
    options: { precision: 'fast' },
    rows: [1, 2],
    text: 0,
    band: FAST_LOGITS,
    sameTokens: false,
  },
]

const small = {
  options: { precision: 'exact' },
  kept: [1, 3],
  async model() {
    const { packed, close } = await faultModel({ ...faultShape, head: true })
    return { ...packed, close }
  },
} as const

export const stateRows: readonly StateRow[] = [
  { ...reference, kept: [1, 3] },
  { ...wasm, kept: [1, 2, 3, 4] },
  { ...wasmFast, kept: [1, 3] },
]

/** In chunks as tests of faults have them: their kernels are compiled already where these follow in a process. */
const inChunks = (packed: PackedModel, options: BackendOptions) =>
  openWebgpuBackend(packed, options, { chunkTokens: 8 })

export const gpuStateRows: readonly StateRow[] = [
  { ...small, name: 'webgpu', open: inChunks },
  {
    ...small,
    name: 'webgpu, experts from disk',
    // Twice what a token wants: a step of four tokens comes in two halves.
    open: (packed, options) =>
      inChunks(packed, { ...options, expertMemory: 4 * slotLayout(packed.experts.layout).stride }),
  },
  {
    ...small,
    name: 'webgpu, experts in memory and on disk',
    open: (packed, options) => openTiered(packed, { gpu: 6, memory: 12 }, options),
    rounding: KERNEL,
  },
]

export async function openDraftBackend(
  row: DraftRow,
  options: Partial<BackendOptions> = {},
): Promise<{ backend: Backend; close(): Promise<void> }> {
  const packed = await (row.model?.() ?? openPacked(await openNodeFolder(demoModel, { links: 'any' })))
  const { expertsPerToken } = packed.config
  const backend = await row.open(packed, { ...row.options, expertsPerToken, drafts: true, ...options })
  return {
    backend,
    async close() {
      await backend.close()
      await packed.close()
    },
  }
}
