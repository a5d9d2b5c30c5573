// Backends opened with the demo model's head for drafts. A backend joins the tests of drafts with one row.
import type { Backend, BackendOptions } from '#moeflux/compute/backend.js'
import { openReferenceBackend } from '#moeflux/compute/reference/referenceBackend.js'
import { openWasmBackend } from '#moeflux/compute/wasm/wasmBackend.js'
import { openNodeFolder } from '#moeflux/storage/nodeFolder.js'
import { openPacked } from '#moeflux/storage/openPacked.js'
import type { PackedModel } from '#moeflux/storage/packedModel.js'
import { type Band, FAST_LOGITS, GOLDEN, KERNEL } from './bands.js'
import { demoModel } from './models.js'

export interface DraftRow {
  readonly name: string
  open(packed: PackedModel, options: BackendOptions): Promise<Backend>
  readonly options: Pick<BackendOptions, 'precision' | 'threads'>
  /** The head's logits, keys and values against the goldens. */
  readonly band: Band
  /** Guesses and greedy text equal the goldens'. */
  readonly sameTokens: boolean
  /** Sees the first prompt and a part of its text. */
  readonly isSlow: boolean
}

export const draftBackends: readonly DraftRow[] = [
  {
    name: 'reference',
    open: openReferenceBackend,
    options: { precision: 'exact' },
    band: GOLDEN,
    sameTokens: true,
    isSlow: true,
  },
  {
    name: 'wasm exact',
    open: openWasmBackend,
    options: { precision: 'exact', threads: 2 },
    band: KERNEL,
    sameTokens: true,
    isSlow: false,
  },
  {
    name: 'wasm fast',
    open: openWasmBackend,
    options: { precision: 'fast', threads: 2 },
    band: FAST_LOGITS,
    sameTokens: false,
    isSlow: true,
  },
]

export async function openDraftBackend(
  row: DraftRow,
  options: Partial<BackendOptions> = {},
): Promise<{ backend: Backend; close(): Promise<void> }> {
  const packed = await openPacked(await openNodeFolder(demoModel, { links: 'any' }))
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
