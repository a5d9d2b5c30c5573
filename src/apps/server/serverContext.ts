// What the endpoints share: the models, admission, metrics and limits. One per server.
import type { ImageHandling } from './absentImages.js'
import type { Admission } from './admission.js'
import { ApiError } from './apiError.js'
import type { BodyRoom } from './bodyBudget.js'
import type { StreamLimits } from './eventSource.js'
import type { HubDesk } from './hub/modelAdmin.js'
import type { LoadedModel } from './loadedModel.js'
import type { Metrics } from './metrics.js'
import type { ModelFiles } from './modelFiles.js'
import type { ModelShelf } from './modelPool.js'
import type { ResponseStore } from './openai/responseStore.js'
import type { BodyLimits } from './requestBody.js'

export interface ServerContext {
  readonly shelf: ModelShelf<LoadedModel>
  /**
   * The model of a server that was started with one: it answers to any other name. Null: several.
   */
  readonly onlyModel: string | null
  readonly startedAt: number // seconds
  readonly hubDesk: HubDesk
  readonly admission: Admission
  readonly metrics: Metrics
  readonly storedResponses: ResponseStore
  /** Of the only model. Null: there are several, or it has no manifest. */
  readonly modelFiles: ModelFiles | null
  /** Requests with another key share no states. */
  readonly scopeByKey: boolean
  /** Of clients that watch the engine. */
  readonly watchers: Set<AbortController>
  readonly bodyLimits: BodyLimits
  readonly bodyRoom: BodyRoom
  readonly streamLimits: StreamLimits
  /** Of one answer. */
  readonly requestTimeoutMs: number
  /** Reports an error that is the server's own fault to the operator. */
  readonly onError: (error: unknown) => void
  readonly images: ImageHandling
  /** Reports anything else that the operator may want to know. */
  readonly onNotice: (line: string) => void
  /** Whether the server is about to stop, and should get no more requests. */
  draining(): boolean
  /** Whether it refuses requests. */
  refusing(): boolean
  /** Aborts, with the error that clients get, when the server stops waiting for answers. */
  readonly stopping: AbortSignal
}

/**
 * The id of the model that a request means. An only model answers to any name, as in local servers.
 * Of several, no name means the first, and an unknown one is an error.
 */
export function chooseModel({ shelf, onlyModel }: ServerContext, name: string | null | undefined): string {
  if (name === '') throw new ApiError('invalid_request', 'model: want a name', { param: 'model' })
  if (name == null) return onlyModel ?? shelf.list[0].offer.id
  const known = [name, name.replace(/:latest$/, '')].find(id => shelf.has(id)) // ollama's clients add a tag
  const meant = known ?? onlyModel
  if (meant === null) throw unknownModel(name)
  return meant
}

export function unknownModel(name: string): ApiError {
  const message = `there is no model '${name.slice(0, 200)}' here (GET /v1/models lists them)`
  return new ApiError('not_found', message, { code: 'model_not_found', param: 'model' })
}
