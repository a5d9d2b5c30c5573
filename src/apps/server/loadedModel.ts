// A model in memory with the session that answers from it, as the shelf of a server keeps them.
import { setMaxListeners } from 'node:events'
import type { Model, Session, SessionOptions } from '../../index.js'
import type { Loadable, LoadHooks, Offer } from './modelPool.js'

export class LoadedModel implements Loadable {
  readonly session: Session
  private readonly leaving = new AbortController()
  private beforeClose: (loaded: LoadedModel) => void = () => {}

  constructor(
    readonly id: string,
    readonly model: Model,
    options: SessionOptions,
    private readonly isOwned: boolean, // closed with the session
  ) {
    this.session = model.createSession(options)
    setMaxListeners(0, this.leaving.signal) // whoever watches the engine listens
  }

  /** Aborted when it is unloaded. */
  get unloading(): AbortSignal {
    return this.leaving.signal
  }

  /** Calls `tell` before it closes. */
  onClose(tell: (loaded: LoadedModel) => void): this {
    this.beforeClose = tell
    return this
  }

  /** One that is another's cannot be opened again here: its requests say what is wrong with it. */
  get hasFailed(): boolean {
    return this.isOwned && this.model.failure !== null
  }

  async close(): Promise<void> {
    this.beforeClose(this)
    this.leaving.abort()
    await this.session.close()
    if (this.isOwned) await this.model.close()
  }
}

/** A model that a server offers and loads when it is asked for. */
export interface ModelOffer {
  /** By which clients ask for it. */
  readonly id: string
  readonly contextLength?: number | null
  /** Is loaded at the start and stays. */
  readonly pinned?: boolean
  /** `hooks`: what it may tell while it is opened, and a signal that it is not wanted any more. */
  open(hooks?: LoadHooks): Promise<Model>
}

/** The same as the shelf takes it. */
export function shelfOffer(offer: ModelOffer, options: SessionOptions): Offer<LoadedModel> {
  return {
    id: offer.id,
    contextLength: offer.contextLength ?? null,
    isPinned: offer.pinned ?? false,
    load: async hooks => new LoadedModel(offer.id, await offer.open(hooks), options, true),
  }
}

export function offers(models: Model | readonly ModelOffer[], id: string | undefined, options: SessionOptions) {
  if (Array.isArray(models)) {
    return (models as readonly ModelOffer[]).map(offer => shelfOffer(offer, options))
  }
  const model = models as Model
  const name = id ?? model.name
  const load = async () => new LoadedModel(name, model, options, false)
  return [{ id: name, contextLength: model.contextLength, isPinned: true, load }]
}
