// One request's stay in the house: the places that it takes, and the signal that ends its work before the answer does,
// because the client left, the server stops, or it took too long. Whatever way it ends, the places are given back once
// and no timer or listener remains.
import type { Context } from 'hono'
import { ApiError, isOwnFault } from './apiError.js'
import { EVENT_STREAM_HEADERS, type EventSourceOptions, eventSource, type ServerSentEvent } from './eventSource.js'
import type { Service } from './service.js'

export class Visit {
  private readonly controller = new AbortController()
  private readonly endings: (() => void)[] = []
  private streams = false

  constructor(
    private readonly service: Service,
    private readonly context: Context,
    places: number,
  ) {
    this.endings.push(service.admission.enter(places))
    const { requestTimeoutMs } = service
    const tooLong = new ApiError('timeout', `the answer took longer than ${requestTimeoutMs / 1000} s`)
    const timer = setTimeout(() => this.abort(tooLong), requestTimeoutMs)
    timer.unref()
    this.endings.push(() => clearTimeout(timer))
    this.listen(service.stopping, () => this.abort(service.stopping.reason))
    this.listen(context.req.raw.signal, () => this.cancel())
  }

  get signal(): AbortSignal {
    return this.controller.signal
  }

  /** Nobody waits for the answer any more. */
  cancel(): void {
    this.abort(new DOMException('the client left', 'AbortError'))
  }

  end(): void {
    for (const ending of this.endings.splice(0)) ending()
  }

  /** Answers with events. The visit lasts until the last one is read. */
  async stream(messages: AsyncGenerator<ServerSentEvent>, onError: EventSourceOptions['onError']): Promise<Response> {
    this.streams = true
    const events = await eventSource(messages, {
      onError: error => {
        if (isOwnFault(error)) this.service.onError(error)
        return onError(error)
      },
      signal: this.signal,
      cancel: () => this.cancel(),
      end: () => this.end(),
      disconnect: () => this.context.env?.outgoing?.destroy(),
      ...this.service.streamLimits,
    })
    return this.context.body(events, 200, EVENT_STREAM_HEADERS)
  }

  /** Whether the answer goes on after the handler returned. */
  get isStreaming(): boolean {
    return this.streams
  }

  private abort(reason: unknown): void {
    this.controller.abort(reason)
    this.end()
  }

  private listen(signal: AbortSignal, listener: () => void): void {
    if (signal.aborted) listener()
    signal.addEventListener('abort', listener, { once: true })
    this.endings.push(() => signal.removeEventListener('abort', listener))
  }
}

/** Runs `handle` with `places` taken; more than there are is a 429. */
export async function visit(
  c: Context,
  service: Service,
  places: number,
  handle: (visit: Visit) => Promise<Response>,
): Promise<Response> {
  const stay = new Visit(service, c, places)
  try {
    const response = await handle(stay)
    if (!stay.isStreaming) stay.end()
    return response
  } catch (error) {
    stay.end()
    throw error
  }
}
