// An opened model: the backend with its weights, and the contexts that run on it. Knows token ids only; what text they
// mean is added in the session room. Nothing here is global: two models in one process do not see each other.
import type { Backend, BackendName, SequenceState } from '../backends/backend.js'
import type { ModelStats } from '../backends/stats.js'
import { ClosedError, ExpertReadError, type MoefluxError, OptionError } from '../base/errors.js'
import type { PackedModel } from '../files/packed/packedModel.js'
import type { Folder } from '../files/source.js'
import type { ModelConfig } from '../model/config.js'
import { Context } from './context.js'
import type { ContextOptions } from './contextOptions.js'
import { DraftGovernor, type DraftStats, type Drafts } from './draftGovernor.js'
import type { EngineFrame } from './engineFrame.js'
import { EngineMonitor } from './engineMonitor.js'
import { locateNonFinite } from './locateNonFinite.js'
import { Scheduler } from './scheduler.js'

/** What opening a model finds. */
export interface ModelParts {
  readonly packed: PackedModel
  readonly backend: Backend
  readonly contextLength: number
  readonly expertsPerToken: number
  readonly drafts: Drafts
}

/** What the backend counts, and the drafts of all contexts together. */
export interface EngineStats extends ModelStats {
  readonly drafts: DraftStats | null // null: the model cannot draft
}

export class EngineModel {
  readonly config: ModelConfig
  readonly name: string
  readonly vocabSize: number
  readonly contextLength: number
  readonly eosTokenIds: readonly number[]
  readonly backend: BackendName
  /** The backend in words: threads, precision, device. */
  readonly backendDescription: string
  /** Experts that each token uses: the model's own number or fewer. */
  readonly expertsPerToken: number
  /** Equal for equal weights, on any machine. */
  readonly fingerprint: string
  readonly folder: Folder
  /** Says how many tokens to guess ahead; null where that cannot be done or is not wanted. */
  readonly drafts: DraftGovernor | null
  private readonly packed: PackedModel
  private readonly compute: Backend
  private readonly monitor: EngineMonitor
  private readonly scheduler: Scheduler
  private readonly contexts = new Set<Context>()
  private closed: Promise<void> | null = null

  constructor({ packed, backend, contextLength, expertsPerToken, drafts }: ModelParts) {
    this.packed = packed
    this.compute = backend
    const watched = { config: backend.config, residency: () => backend.residency(), stats: () => this.stats() }
    this.monitor = new EngineMonitor(watched, expertsPerToken)
    // Kernels of a GPU are compiled when it is opened.
    const machine = { isCompiled: backend.name === 'wasm', isUnsteady: () => backend.isTrying === true }
    this.drafts = backend.draft === undefined ? null : new DraftGovernor(drafts, backend.mostGuesses, machine)
    this.scheduler = new Scheduler(backend, this.monitor, this.drafts)
    this.config = packed.config
    this.name = packed.name
    this.vocabSize = packed.config.vocabSize
    this.contextLength = contextLength
    this.eosTokenIds = packed.config.eosTokenIds
    this.backend = backend.name
    this.backendDescription = backend.description
    this.expertsPerToken = expertsPerToken
    this.fingerprint = packed.fingerprint
    this.folder = packed.folder
  }

  protected checkOpen(): void {
    if (this.closed) throw new ClosedError('model')
  }

  /** Why nothing can be evaluated any more, and the model has to be opened again; null while all is well. */
  get failure(): MoefluxError | null {
    return this.compute.failure
  }

  /** Ends when the experts are there that are read behind everything else after opening. */
  loaded(): Promise<void> {
    return this.compute.loaded()
  }

  /** A new, empty sequence. Several may live at once. */
  createContext(options?: ContextOptions): Context {
    this.checkOpen()
    const locator = { backend: this.compute, scheduler: this.scheduler, experts: this.packed.experts }
    const host = {
      backend: this.compute,
      scheduler: this.scheduler,
      contextLength: this.contextLength,
      locateNonFinite: (sequence: SequenceState, tokens: readonly number[], signal: AbortSignal) =>
        locateNonFinite(locator, sequence, tokens, signal),
      contextClosed: (context: Context) => {
        this.contexts.delete(context)
      },
    }
    const context = new Context(host, options)
    this.contexts.add(context)
    return context
  }

  stats(): EngineStats {
    return { ...this.compute.stats(), drafts: this.drafts?.stats ?? null }
  }

  /** Calls `listener` with what the engine does, at most ten times a second, until the returned function is called. */
  watch(listener: (frame: EngineFrame) => void): () => void {
    this.checkOpen()
    return this.monitor.watch(listener)
  }

  /** The bytes of one expert's record, as the packed file has them. */
  async readExpert(layer: number, expert: number): Promise<Uint8Array> {
    this.checkOpen()
    const place = this.config.moeLayers.indexOf(layer)
    if (place < 0) throw new OptionError('layer', layer, 'the number of a layer with experts')
    checkIndex('expert', expert, this.config.numExperts)
    const { files, layout } = this.packed.experts
    const record = new Uint8Array(layout.expertSize)
    const offset = expert * layout.expertSize
    try {
      await files[place].read(offset, record)
    } catch (error) {
      throw new ExpertReadError(layer, expert, files[place].name, offset, String(error), { cause: error })
    }
    return record
  }

  /** Stops what runs, closes all contexts, and gives memory and files back. */
  close(): Promise<void> {
    this.closed ??= this.shutDown()
    return this.closed
  }

  private async shutDown() {
    const contexts = [...this.contexts].map(context => context.close()) // which also stops what they evaluate
    await this.scheduler.close()
    this.monitor.close()
    await Promise.all(contexts)
    try {
      await this.compute.close()
    } finally {
      await this.packed.close()
    }
  }
}

function checkIndex(what: string, index: number, count: number) {
  if (!Number.isInteger(index) || index < 0 || index >= count) {
    throw new OptionError(what, index, `an integer from 0 to ${count - 1}`)
  }
}
