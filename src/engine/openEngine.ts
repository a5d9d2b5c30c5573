// From a path to the parts of an opened model: packs MLX and HF folders and GGUF files once into the cache, checks the options against
// the model, and opens a backend. What is opened is closed again where a later step fails.
import type { PlannedState, Precision, Progress } from '../backends/backend.js'
import type { HostedOptions, WasmHost } from '../backends/wasm/platform.js'
import { countWithin } from '../base/countWithin.js'
import { PLANNED_TOKENS } from '../base/defaults.js'
import { OptionError } from '../base/errors.js'
import { parseByteSize } from '../base/quantities.js'
import { openPacked } from '../files/packed/openPacked.js'
import type { PackedModel } from '../files/packed/packedModel.js'
import type { Folder } from '../files/source.js'
import { type BackendChoice, backendsWithoutGpu, chooseBackend } from './chooseBackend.js'
import type { Drafts } from './draftGovernor.js'
import type { ModelParts } from './model.js'

export interface OpenModelOptions {
  /** Default 'auto': webgpu if a real GPU is there, else wasm, else reference. */
  readonly backend?: BackendChoice
  readonly threads?: number
  /**
   * Budget for cached experts: bytes, or '6GB' (6·10⁹), '6GiB' (6·2³⁰). Beside a GPU with memory of its own: for those that
   * the GPU does not hold.
   */
  readonly expertMemory?: number | string
  /** The most GPU memory for experts (webgpu); default what the GPU gives. The processor computes the others. */
  readonly gpuMemory?: number | string
  /** int8 ('fast', the default) or float32 ('exact') activations on wasm and webgpu. */
  readonly precision?: Precision
  /** Fewer experts than the model's own: faster, less exact. */
  readonly expertsPerToken?: number
  /** Use the second set of experts, in 2 bits. */
  readonly expertBits?: 2
  /** The longest sequence; default and maximum what the model allows. */
  readonly contextLength?: number
  /**
   * How much state memory is planned for: tokens of all sequences together. Default: `contextLength` where that is given,
   * else 4096. What goes beyond it has to find room later.
   */
  readonly planFor?: { readonly tokens: number; readonly sequences?: number }
  /**
   * Tokens to guess ahead with the model's own head, where it carries one: a number, or 'auto', as many as pay. Text is the same
   * as without. Default 0.
   */
  readonly drafts?: Drafts
  /** How experts are read from files (wasm, webgpu). Default auto: past the page cache when they exceed free memory. */
  readonly expertReads?: 'auto' | 'direct' | 'buffered'
  /** Read experts ahead where it pays (wasm, webgpu). Default true. */
  readonly prefetch?: boolean
  /**
   * Compare weights with the folder's checksums as they are read, where it has them by blocks. Default true; costs about a
   * tenth of a second of one core per GB.
   */
  readonly checksums?: boolean
  /** Disk for what is fetched of a model on a server: bytes, or '20GB'. Default 20 GiB; 0 keeps nothing. */
  readonly modelCache?: number | string
  readonly onProgress?: (progress: Progress) => void
  /** One line for the user: a fallback taken, a size chosen. */
  readonly onNotice?: (line: string) => void
  readonly signal?: AbortSignal
}

/** What tests, measurements and tabs bring along, and what users have no need of. */
export interface EngineFittings {
  /** Why there is no GPU, where that is known already: then none is asked for. */
  readonly noGpu?: string
  /** Measure every kernel into `stats().phaseSeconds`, where that costs speed (webgpu). */
  readonly profile?: boolean
  /** The words of a ReadFaults: a disk that fails. */
  readonly readFaults?: SharedArrayBuffer
  /** Where the wasm backend finds threads and readers, where that is not Node. */
  readonly wasmHost?: WasmHost
}

/**
 * `folder`: a path (Node), or a packed folder from anywhere. `prepare` loads what else the model needs, before memory is
 * planned: what it takes is then seen instead of guessed.
 */
export async function openModelParts(
  folder: string | Folder,
  options: OpenModelOptions,
  fittings: EngineFittings,
  prepare?: (packed: PackedModel) => Promise<void>,
): Promise<ModelParts> {
  const expertMemory = checkOptions(options)
  const { onProgress, onNotice, signal } = options
  signal?.throwIfAborted()
  const packedFolder = typeof folder === 'string' ? await findPacked(folder, options) : folder
  const { expertBits, checksums } = options
  const packed = await openPacked(packedFolder, { expertBits, checksums })
  try {
    const { config } = packed
    const contextLength = countWithin('contextLength', options.contextLength, config.maxPositionEmbeddings)
    if (config.numExperts === 0 && options.expertsPerToken !== undefined) {
      throw new OptionError('expertsPerToken', options.expertsPerToken, 'nothing: this model has no experts')
    }
    const expertsPerToken = countWithin('expertsPerToken', options.expertsPerToken, config.expertsPerToken)
    await prepare?.(packed)
    const drafts = options.drafts ?? 0
    const hosted: HostedOptions = {
      threads: options.threads,
      expertMemory,
      gpuMemory: options.gpuMemory === undefined ? undefined : parseByteSize(options.gpuMemory, 'gpuMemory'),
      precision: options.precision ?? 'fast',
      expertsPerToken,
      planned: plannedState(options, contextLength),
      expertReads: options.expertReads,
      prefetch: options.prefetch,
      drafts: drafts === 'auto' ? 'auto' : drafts > 0,
      guesses: drafts === 'auto' ? undefined : drafts,
      profile: fittings.profile,
      readFaults: fittings.readFaults,
      wasmHost: fittings.wasmHost,
      onProgress,
      onNotice,
      signal,
    }
    const backends = fittings.noGpu === undefined ? undefined : backendsWithoutGpu(fittings.noGpu)
    const backend = await chooseBackend(options.backend ?? 'auto', packed, hosted, backends)
    if (backend.noDrafts) onNotice?.(`no guessing ahead: ${backend.noDrafts}`)
    else if (drafts !== 'auto' && drafts > 0 && backend.draft === undefined) {
      await backend.close()
      const reason =
        config.draftHead === null ? 'this model carries no head' : `the ${backend.name} backend has no drafts`
      throw new OptionError('drafts', drafts, `auto or 0: ${reason}`)
    }
    return { packed, backend, contextLength, expertsPerToken, drafts }
  } catch (error) {
    await packed.close()
    throw error
  }
}

async function findPacked(path: string, options: OpenModelOptions): Promise<Folder> {
  if (/^(https?|s3):\/\//i.test(path)) {
    const { openRemoteFolder } = await import('../files/remote/nodeRemoteFolder.js')
    const cacheBytes = options.modelCache === undefined ? undefined : parseByteSize(options.modelCache, 'modelCache')
    return await openRemoteFolder(path, { cacheBytes, onNotice: options.onNotice, signal: options.signal })
  }
  const { refuseBundle } = await import('../base/nodeInstalled.js')
  refuseBundle()
  const { preparePacked } = await import('../files/convert/nodePreparePacked.js')
  const { openNodeFolder } = await import('../files/nodeFolder.js')
  const { onProgress, onNotice, signal } = options
  return openNodeFolder(await preparePacked(path, { onProgress, onNotice, signal }), { links: 'any' })
}

/** What can be said without the model; returns the expert memory in bytes. */
function checkOptions(options: OpenModelOptions): number | undefined {
  oneOf('backend', options.backend, ['auto', 'webgpu', 'wasm', 'reference'])
  oneOf('precision', options.precision, ['fast', 'exact'])
  oneOf('expertBits', options.expertBits, [2])
  oneOf('drafts', options.drafts, ['auto', 0, 1, 2, 3])
  oneOf('expertReads', options.expertReads, ['auto', 'direct', 'buffered'])
  countWithin('threads', options.threads, 1024)
  return options.expertMemory === undefined ? undefined : parseByteSize(options.expertMemory, 'expertMemory')
}

function oneOf(option: string, value: unknown, choices: readonly unknown[]) {
  if (value !== undefined && !choices.includes(value)) throw new OptionError(option, value, choices.join(', '))
}

function plannedState({ planFor, contextLength: asked }: OpenModelOptions, contextLength: number): PlannedState {
  if (planFor !== undefined) return { sequences: 1, ...planFor, isContext: false }
  const tokens = asked === undefined ? Math.min(PLANNED_TOKENS, contextLength) : contextLength
  return { tokens, sequences: 1, isContext: true }
}
