// What the endpoints share: the model and its session, admission, metrics and limits. One per server.
import type { Model } from '../session/openModel.js'
import type { Session } from '../session/session.js'
import type { Admission } from './admission.js'
import { ApiError } from './apiError.js'
import type { Metrics } from './metrics.js'
import type { BodyLimits } from './requestBody.js'

export interface Service {
  readonly model: Model
  readonly session: Session
  readonly modelId: string
  readonly startedAt: number // seconds
  readonly admission: Admission
  readonly metrics: Metrics
  readonly bodyLimits: BodyLimits
  /** Longest time that one answer may take. */
  readonly requestTimeoutMs: number
  /** No new work is taken: the server is about to stop. */
  draining(): boolean
  /** Aborted when the server stops waiting for answers. */
  readonly stopping: AbortSignal
}

/** When one request is over before its answer: the client left, the server stops, or it takes too long. */
export interface Lifetime {
  readonly signal: AbortSignal
  /** The client is gone. */
  cancel(): void
}

export function requestLifetime(service: Service, client: AbortSignal): Lifetime {
  const gone = new AbortController()
  const signal = AbortSignal.any([client, gone.signal, service.stopping, AbortSignal.timeout(service.requestTimeoutMs)])
  return { signal, cancel: () => gone.abort(new DOMException('the client left', 'AbortError')) }
}

/** Any name is answered by the one model that is loaded, as local servers do; an empty one is a mistake. */
export function checkModelName(name: string | undefined): void {
  if (name === '') throw new ApiError('invalid_request', 'model: want a name', { param: 'model' })
}
