// What a page can do about models: see those that are here and those that could be, have one loaded, pulled, or stopped on
// the way. Long work runs beside the request that asked for it; GET /hub tells how far it is.
import { MoefluxError } from '../../../base/errors.js'
import { ApiError, isAbort, toApiError, withoutFolders } from '../apiError.js'
import type { LoadedModel, ModelOffer } from '../loadedModel.js'
import type { LoadHooks, LoadProgress, ModelShelf } from '../modelPool.js'
import type { KnownModel, ModelAbout, ModelHub, PullForecast } from './modelHub.js'
import { type Pull, Pulls } from './pulls.js'

export interface HubDeskOptions {
  readonly shelf: ModelShelf<LoadedModel>
  readonly hub: ModelHub | null
  /** Takes a model that was pulled onto the shelf. */
  readonly offer: (offer: ModelOffer) => void
  readonly onError: (error: unknown) => void
  readonly onNotice: (line: string) => void
}

export class HubDesk {
  readonly pulls: Pulls
  private readonly problems = new Map<string, string>() // why models could not be loaded

  constructor(private readonly options: HubDeskOptions) {
    this.pulls = new Pulls(
      (name, hooks) => this.bring(name, hooks),
      error => {
        options.onError(error)
        return toApiError(error).message
      },
    )
  }

  /** What is known of a model that is offered, in memory or not. */
  async about(id: string): Promise<ModelAbout | null> {
    return (await this.options.hub?.about(id)) ?? null
  }

  async body(): Promise<object> {
    const { hub, shelf } = this.options
    const [known, machine] = await Promise.all([hub?.known() ?? [], hub?.machine() ?? null])
    const models = await Promise.all(
      shelf.list.map(async ({ offer, state, loaded, progress }) => ({
        id: offer.id,
        state,
        pinned: offer.isPinned,
        context_length: loaded?.model.contextLength ?? offer.contextLength,
        ...aboutBody(await this.about(offer.id)),
        progress: progressBody(progress),
        problem: this.problems.get(offer.id) ?? null,
      })),
    )
    return {
      models,
      known: known.map(knownBody),
      pulls: this.pulls.list.filter(({ state }) => state !== 'done').map(pullBody),
      can_pull: hub?.mayPull ?? false,
      free_memory: machine?.freeMemory ?? null,
      total_memory: machine?.totalMemory ?? null,
      free_disk: machine?.freeDisk ?? null,
    }
  }

  /** Begins to load a model, which is there when its state says so. */
  load(id: string): void {
    this.problems.delete(id)
    this.options.shelf.acquire(id).then(
      lease => lease.release(),
      error => {
        if (isAbort(error)) return // it was stopped
        this.options.onError(error)
        this.problems.set(id, toApiError(error).message)
      },
    )
  }

  pull(name: string): Pull {
    this.needHub()
    const pull = this.pulls.begin(name)
    if (pull === null) throw new ApiError('rate_limit', 'several models are being pulled: wait for one, or stop it')
    return pull
  }

  /** Stops a pull or the loading of a model. */
  stop(name: string): boolean {
    const reason = new DOMException('loading was stopped', 'AbortError')
    return this.pulls.stop(name) || this.options.shelf.stopLoading(name, reason)
  }

  async forecast(name: string, signal: AbortSignal): Promise<object> {
    try {
      return forecastBody(await this.needHub().forecast(name, signal))
    } catch (error) {
      // That the hub has no such model, or cannot be asked, is nobody's fault here.
      if (!(error instanceof MoefluxError)) throw error
      throw new ApiError('invalid_request', withoutFolders(error), { code: error.code.toLowerCase(), param: 'model' })
    }
  }

  private async bring(name: string, hooks: LoadHooks): Promise<void> {
    this.options.onNotice(`pulling ${name}`)
    this.options.offer(await this.needHub().pull(name, hooks))
    this.options.onNotice(`pulled ${name}`)
  }

  private needHub(): ModelHub {
    const { hub } = this.options
    if (hub?.mayPull) return hub
    throw new ApiError('permission', 'this server pulls no models for clients (--allow-pull lets it)')
  }
}

function aboutBody(about: ModelAbout | null): object {
  return {
    bytes: about?.bytes ?? null,
    fits: about?.fit?.fits ?? null,
    tokens_per_second: about?.fit?.tokensPerSecond ?? null,
    least_memory: about?.fit?.leastMemory ?? null,
  }
}

function knownBody(model: KnownModel): object {
  const { name, title, hub, unfinishedBytes, diskBytes } = model
  return { name, title, hub, unfinished_bytes: unfinishedBytes, disk_bytes: diskBytes, ...aboutBody(model) }
}

function forecastBody(found: PullForecast): object {
  const { name, downloadBytes, diskBytes } = found
  return { name, download_bytes: downloadBytes, disk_bytes: diskBytes, ...aboutBody(found) }
}

function pullBody({ name, startedAt, state, progress, problem }: Pull): object {
  return { name, started_at: startedAt, state, progress: progressBody(progress), problem }
}

function progressBody(progress: LoadProgress | null): object | null {
  return progress === null ? null : { phase: progress.phase, loaded: progress.loaded, total: progress.total }
}
