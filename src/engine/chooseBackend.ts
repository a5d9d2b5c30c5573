// Opens the backend that was asked for, or the best one that runs here. Backends are loaded only when they are tried, so
// that a page or a program without a GPU never loads the code for one. A fallback is announced once, with its reason; that a
// machine has no GPU is none.
import type { Backend, BackendName } from '../backends/backend.js'
import type { HostedOptions } from '../backends/wasm/platform.js'
import { BackendUnavailableError } from '../base/errors.js'
import type { PackedModel } from '../files/packed/packedModel.js'

export type BackendChoice = 'auto' | BackendName

type OpenBackend = (packed: PackedModel, options: HostedOptions) => Promise<Backend>

export interface BackendEntry {
  readonly name: BackendName
  load(): Promise<OpenBackend>
}

/** Best first: the order in which 'auto' tries them. */
const BACKENDS: readonly BackendEntry[] = [
  {
    name: 'webgpu',
    load: async () => (await import('../backends/webgpu/open/openWebgpuBackend.js')).openWebgpuBackend,
  },
  { name: 'wasm', load: async () => (await import('../backends/wasm/wasmBackend.js')).openWasmBackend },
  {
    name: 'reference',
    load: async () => (await import('../backends/reference/referenceBackend.js')).openReferenceBackend,
  },
]

/** The same where it is known already that there is no GPU. */
export function backendsWithoutGpu(reason: string): readonly BackendEntry[] {
  const absent = async () => {
    throw new BackendUnavailableError('webgpu', reason, { absent: true })
  }
  return BACKENDS.map(entry => (entry.name === 'webgpu' ? { ...entry, load: absent } : entry))
}

export async function chooseBackend(
  choice: BackendChoice,
  packed: PackedModel,
  options: HostedOptions,
  backends: readonly BackendEntry[] = BACKENDS,
): Promise<Backend> {
  const candidates = backends.filter(({ name }) => choice === 'auto' || name === choice)
  let lastError: unknown = new BackendUnavailableError(choice, 'is not part of this build')
  for (const { load } of candidates) {
    options.signal?.throwIfAborted()
    try {
      const open = await load()
      return await open(packed, { ...options, automatic: choice === 'auto' })
    } catch (error) {
      if (choice !== 'auto' || !(error instanceof BackendUnavailableError)) throw error
      lastError = error
      if (!error.absent) options.onNotice?.(`not used: ${error.message}`)
    }
  }
  throw lastError
}
