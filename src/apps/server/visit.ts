// One request's stay in the house: the places that it takes, its body and the room for it, and the signal that ends its
// work before the answer does, because the client left, the server stops, or it took too long. Whatever way it ends, what
// it took is given back once and no timer or listener remains.
import type { Context } from 'hono'
import type { z } from 'zod'
import type { Permits } from './admission.js'
import { ApiError, isOwnFault } from './apiError.js'
import {
  EVENT_STREAM_HEADERS,
  type EventSourceOptions,
  eventSource,
  LINE_STREAM_HEADERS,
  type ServerSentEvent,
} from './eventSource.js'
import { probeHalfClosed } from './halfClosed.js'
import type { LoadedModel } from './loadedModel.js'
import { loadingStream } from './loadingStream.js'
import type { Lease } from './modelPool.js'
import { readBody } from './requestBody.js'
import { chooseModel, type Served, type ServerContext } from './serverContext.js'

/** A request whose body takes longer to arrive does not keep its place meanwhile. */
const ARRIVAL_PATIENCE_MS = 2_000

export class Visit {
  private readonly controller = new AbortController()
  private readonly endings: (() => void)[] = []
  private readonly permits: Permits
  private streams = false
  private sendComment = () => {}

  /** Takes a place, or throws. */
  constructor(
    private readonly server: ServerContext,
    private readonly context: Context,
  ) {
    this.permits = server.admission.enter()
    this.endings.push(() => this.permits.resize(0))
    const { requestTimeoutMs } = server
    const tooLong = new ApiError('timeout', `the answer took longer than ${requestTimeoutMs / 1000} s`)
    const timer = setTimeout(() => this.abort(tooLong), requestTimeoutMs)
    timer.unref()
    this.endings.push(() => clearTimeout(timer))
    this.listen(server.stopping, () => this.abort(server.stopping.reason))
    this.listen(context.req.raw.signal, () => this.cancel())
    const { incoming, outgoing } = context.env ?? {}
    if (incoming && outgoing) this.endings.push(probeHalfClosed(incoming, outgoing, () => this.sendComment()))
  }

  get signal(): AbortSignal {
    return this.controller.signal
  }

  /** Reads what is asked for, and takes the places that it needs. */
  async read<T>(schema: z.ZodType<T>, placesFor: (request: T) => number): Promise<T> {
    const { bodyLimits, bodyRoom } = this.server
    const patience = setTimeout(() => this.permits.resize(0), ARRIVAL_PATIENCE_MS)
    try {
      const { request, release } = await readBody(this.context, schema, bodyLimits, bodyRoom, this.signal)
      this.endings.push(release)
      this.signal.throwIfAborted()
      this.permits.resize(placesFor(request))
      return request
    } finally {
      clearTimeout(patience)
    }
  }

  /** The requests that may share states with this one. */
  get scope(): string {
    return this.server.scopeByKey ? ((this.context.get('keyScope') as string | undefined) ?? '') : ''
  }

  /** The model, when it is there; the request's until it ends. `keepMs`: how long it stays then, where the request says so. */
  async model(id: string, keepMs: number | null | undefined): Promise<Served> {
    const lease: Lease<LoadedModel> = await this.server.shelf.acquire(id, this.signal)
    // The visit may have ended meanwhile.
    if (this.signal.aborted) lease.release()
    else this.endings.push(() => lease.release())
    this.signal.throwIfAborted()
    if (keepMs != null) lease.keepFor(keepMs)
    const { model, session } = lease.loaded
    return { ...this.server, model, session, modelId: id }
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
    return this.context.body(await this.streamOf(messages, onError, false), 200, EVENT_STREAM_HEADERS)
  }

  /** The same with a line of JSON for each. */
  async streamLines(lines: AsyncGenerator<ServerSentEvent>, onError: EventSourceOptions['onError']): Promise<Response> {
    return this.context.body(await this.streamOf(lines, onError, true), 200, LINE_STREAM_HEADERS)
  }

  private async streamOf(
    messages: AsyncGenerator<ServerSentEvent>,
    onError: EventSourceOptions['onError'],
    asLines: boolean,
  ): Promise<ReadableStream<Uint8Array>> {
    this.streams = true
    return await eventSource(messages, {
      asLines,
      onError: logged(this.server, onError),
      signal: this.signal,
      cancel: () => this.cancel(),
      end: () => this.end(),
      disconnect: () => this.context.env?.outgoing?.destroy(),
      onComment: sendComment => {
        this.sendComment = sendComment
      },
      ...this.server.streamLimits,
    })
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

export const onePlace = () => 1

/** The operator is told as well, of what is the server's own fault. */
function logged({ onError }: ServerContext, tell: EventSourceOptions['onError']): EventSourceOptions['onError'] {
  return error => {
    if (isOwnFault(error)) onError(error)
    return tell(error)
  }
}

function loadingLine({ shelf }: ServerContext, id: string): string {
  const { loaded, total } = shelf.find(id)?.progress ?? { loaded: 0, total: 0 }
  return `loading ${JSON.stringify(id)}${total > 0 ? ` ${Math.floor((loaded / total) * 100)}%` : ''}`
}

/** What a request says of the model, and of how it wants the answer. */
interface ModelRequest {
  readonly model?: string | null
  readonly stream?: boolean | null
  readonly keep_alive?: number | null // ms
}

interface VisitOptions<T> {
  /** An answer that needs no model in memory, or null. */
  readonly withoutModel?: (request: T, id: string) => Response | null
  /** How errors are told in event streams, by APIs that have them. */
  readonly onError?: EventSourceOptions['onError']
}

/**
 * Takes a place, then the body, then the places that what it asks for needs, then the model; more places than there are is a
 * 429. A stream says that its model is being loaded.
 */
export async function visit<T extends ModelRequest>(
  c: Context,
  server: ServerContext,
  schema: z.ZodType<T>,
  placesFor: (request: T) => number,
  handle: (visit: Visit, request: T, server: Served) => Promise<Response>,
  { withoutModel, onError }: VisitOptions<T> = {},
): Promise<Response> {
  const stay = new Visit(server, c)
  try {
    const request = await stay.read(schema, placesFor)
    const id = chooseModel(server, request.model)
    const answer = async () => await handle(stay, request, await stay.model(id, request.keep_alive))
    const early = withoutModel?.(request, id) ?? null
    if (early === null && onError && request.stream && !server.shelf.isLoaded(id)) {
      return loadingStream(c, stay, () => loadingLine(server, id), answer, logged(server, onError))
    }
    const response = early ?? (await answer())
    if (!stay.isStreaming) stay.end()
    return response
  } catch (error) {
    stay.end()
    throw error
  }
}
