// What the endpoints share: the model and its session, admission, metrics and limits. One per server.
import type { Model } from '../session/openModel.js'
import type { Session } from '../session/session.js'
import type { ImageHandling } from './absentImages.js'
import type { Admission } from './admission.js'
import { ApiError } from './apiError.js'
import type { BodyRoom } from './bodyRoom.js'
import type { StreamLimits } from './eventSource.js'
import type { Metrics } from './metrics.js'
import type { ModelFiles } from './modelFiles.js'
import type { BodyLimits } from './requestBody.js'

export interface Service {
  readonly model: Model
  readonly session: Session
  readonly modelId: string
  readonly startedAt: number // seconds
  readonly admission: Admission
  readonly metrics: Metrics
  readonly modelFiles: ModelFiles | null
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
  /** No new work is taken: the server is about to stop. */
  draining(): boolean
  /** Aborted, with what clients are told, when the server stops waiting for answers. */
  readonly stopping: AbortSignal
}

/** Any name is answered by the one model that is loaded, as local servers do; an empty one is a mistake. */
export function checkModelName(name: string | undefined): void {
  if (name === '') throw new ApiError('invalid_request', 'model: want a name', { param: 'model' })
}
