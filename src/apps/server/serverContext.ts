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
  /** The one that the server was started with, which answers to any name that is no other's; null where it had several. */
  readonly onlyModel: string | null
  readonly startedAt: number // seconds
  readonly hubDesk: HubDesk
  readonly admission: Admission
  readonly metrics: Metrics
  readonly storedResponses: ResponseStore
  /** Of the only model. */
  readonly modelFiles: ModelFiles | null
  /** Requests with another key share no states. */
  readonly scopeByKey: boolean
  /** Who looks at the engine now. */
  readonly watchers: Set<AbortController>
  readonly bodyLimits: BodyLimits
  readonly bodyRoom: BodyRoom
  readonly streamLimits: StreamLimits
  /** Longest time that one answer may take. */
  readonly requestTimeoutMs: number
  /** What the operator should know of an error that is the server's own fault. */
  readonly onError: (error: unknown) => void
  readonly images: ImageHandling
  /** What it may want to know besides. */
  readonly onNotice: (line: string) => void
  /** The server is about to stop, and should get no more requests. */
  draining(): boolean
  /** It takes none any more. */
  refusing(): boolean
  /** Aborted, with what clients are told, when the server stops waiting for answers. */
  readonly stopping: AbortSignal
}

/**
 * Which model a request means. Any name is answered by an only model, as local servers do; where there are several, one that
 * is not among them is an error, and none means the first.
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
