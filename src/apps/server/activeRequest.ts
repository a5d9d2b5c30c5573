// A request from its admission to the end of its answer, and what it holds meanwhile: permits, the
// memory of its body, the lease of its model, a timer and listeners. Its signal aborts when the
// client leaves, the server stops or the answer takes too long. However the request ends, what it
// holds is released once.
import type { Context } from 'hono'
import type { Permits } from './admission.js'
import { ApiError } from './apiError.js'
import { probeHalfClosed } from './halfClosed.js'
import type { ServerContext } from './serverContext.js'

export class ActiveRequest {
  /** Requests of another scope share no states with this one. */
  readonly scope: string
  /** Sends a comment in the stream that answers; set by that stream. */
  sendComment: () => void = () => {}
  private readonly controller = new AbortController()
  private readonly permits: Permits
  private readonly releases: (() => void)[] = []
  private handedOver = false
  private hasEnded = false

  /** Takes a permit, or throws. */
  constructor({ admission, requestTimeoutMs, scopeByKey, stopping }: ServerContext, c: Context) {
    this.scope = scopeByKey ? (c.get('keyScope') ?? '') : ''
    this.permits = admission.enter()
    this.releaseAtEnd(() => this.permits.resize(0))
    const timer = setTimeout(() => this.abort(tooLong(requestTimeoutMs)), requestTimeoutMs)
    timer.unref()
    this.releaseAtEnd(() => clearTimeout(timer))
    this.listen(stopping, () => this.abort(stopping.reason))
    this.listen(c.req.raw.signal, () => this.cancel())
    const { incoming, outgoing } = c.env ?? {}
    if (incoming && outgoing) this.releaseAtEnd(probeHalfClosed(incoming, outgoing, () => this.sendComment()))
  }

  get signal(): AbortSignal {
    return this.controller.signal
  }

  /** Takes or returns permits until the request has `permits`, or throws. */
  resize(permits: number): void {
    if (!this.hasEnded) this.permits.resize(permits)
  }

  /** Calls `release` when the request ends; at once if it has ended. */
  releaseAtEnd(release: () => void): void {
    if (this.hasEnded) release()
    else this.releases.push(release)
  }

  /** A stream now ends the request, and not the return of its handler. */
  handOver(): void {
    this.handedOver = true
  }

  get isHandedOver(): boolean {
    return this.handedOver
  }

  /** Ends a request whose client has left. */
  cancel(): void {
    this.abort(new DOMException('the client left', 'AbortError'))
  }

  end(): void {
    this.hasEnded = true
    for (const release of this.releases.splice(0)) release()
  }

  private abort(reason: unknown): void {
    this.controller.abort(reason)
    this.end()
  }

  private listen(signal: AbortSignal, listener: () => void): void {
    if (signal.aborted) listener()
    signal.addEventListener('abort', listener, { once: true })
    this.releaseAtEnd(() => signal.removeEventListener('abort', listener))
  }
}

function tooLong(requestTimeoutMs: number): ApiError {
  return new ApiError('timeout', `the answer took longer than ${requestTimeoutMs / 1000} s`)
}
