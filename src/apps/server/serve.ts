// A listening server over one opened model, or several that are opened on request: its parts, its
// start and its stop. A stop first refuses new requests, then waits for answers, then cancels them.
// A connection is closed only when the body that its client sends has been read (lingering close).
import { setMaxListeners } from 'node:events'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { createAdaptorServer } from '@hono/node-server'
import { MoefluxError, OutOfMemoryError } from '../../base/errors.js'
import { MemoryPlanError } from '../../base/memoryErrors.js'
import type { Model, SessionOptions } from '../../index.js'
import type { ImageHandling } from './absentImages.js'
import { Admission } from './admission.js'
import { stoppingError } from './apiError.js'
import { createApp } from './app.js'
import { BodyRoom } from './bodyBudget.js'
import { Guard } from './guard.js'
import { answerHalfClosed } from './halfClosed.js'
import { HubDesk } from './hub/modelAdmin.js'
import type { ModelHub } from './hub/modelHub.js'
import { nowSeconds } from './ids.js'
import { ShelfTotals } from './lifetimeTotals.js'
import { type LoadedModel, type ModelOffer, offers, shelfOffer } from './loadedModel.js'
import { logLine, logLines } from './logLine.js'
import { Metrics } from './metrics.js'
import { ModelFiles } from './modelFiles.js'
import { LONGEST_TIMER_MS, ModelShelf, type Offer, type ShelfOptions } from './modelPool.js'
import { ResponseStore } from './openai/responseStore.js'
import { type BodyLimits, DEFAULT_BODY_LIMITS } from './requestBody.js'
import type { ServerContext } from './serverContext.js'
import { listStaticFiles } from './staticFiles.js'

export type { ImageHandling } from './absentImages.js'
export type { KnownModel, ModelAbout, ModelFit, ModelHub, PullForecast } from './hub/modelHub.js'
export type { ModelOffer } from './loadedModel.js'
export type { LoadHooks, LoadProgress } from './modelPool.js'

export interface ServeOptions {
  readonly host?: string // default 127.0.0.1
  readonly port?: number // default 11435; 0 takes any
  readonly apiKey?: string | readonly string[]
  readonly corsOrigins?: readonly string[]
  readonly allowedHosts?: readonly string[]
  readonly modelId?: string // default the model's name
  readonly parallel?: number // answers at once. Default 8
  readonly maxQueue?: number // requests that may wait. Default 64
  readonly maxBodyBytes?: number
  readonly requestTimeoutMs?: number // of one answer. Default an hour
  readonly receiveTimeoutMs?: number // of one request's arrival. Default a minute
  readonly readerTimeoutMs?: number // for a client that does not read its stream. Default a minute
  readonly keepAliveMs?: number // between comments in a stream that has nothing to say. Default 10 s
  readonly images?: ImageHandling // default 'refuse'
  readonly store?: SessionOptions['store']
  /** 'key': requests with different keys share no states. Default 'all'. */
  readonly storeScope?: 'all' | 'key'
  /** Of several models, so many are in memory at once. Default: as many as there is room for. */
  readonly maxLoaded?: number
  /** How long an idle one of several stays. Default ten minutes. */
  readonly keepLoadedMs?: number
  /** When it is stopped, the time in which requests are still taken while /ready says that none should come. Default 0. */
  readonly drainMs?: number
  readonly webFolder?: string
  /** What is known of models that are not in memory, and how to bring others. Default: nothing. */
  readonly hub?: ModelHub
  readonly onLog?: (line: string) => void
  readonly onWarning?: (line: string) => void
}

export interface RunningServer {
  readonly url: string
  readonly port: number
  /** Takes no new requests, waits up to `graceMs` for those that run, cancels the rest. The model stays open. */
  stop(graceMs?: number): Promise<void>
}

const DEFAULT_PORT = 11435
const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000

/** Serves an opened model, which stays the caller's; or several, which are opened and closed as they are asked for. */
export async function serve(models: Model | readonly ModelOffer[], asked: ServeOptions = {}): Promise<RunningServer> {
  const options = { ...asked, onLog: ofLines(asked.onLog), onWarning: ofLines(asked.onWarning) }
  const { host = '127.0.0.1', port = DEFAULT_PORT, parallel = 8, maxQueue = 64 } = options
  const shelf = openShelf(models, options)
  const totals = shelf.totals
  const admission = new Admission(parallel, maxQueue)
  const stopping = new AbortController()
  setMaxListeners(0, stopping.signal) // every request listens: eleven are no leak
  let draining = false
  let refusing = false
  const receiveMs = options.receiveTimeoutMs ?? MINUTE_MS
  const bodyLimits: BodyLimits = {
    ...DEFAULT_BODY_LIMITS,
    maxBytes: options.maxBodyBytes ?? DEFAULT_BODY_LIMITS.maxBytes,
  }
  const bodyRoom = new BodyRoom({ maxBytes: bodyLimits.maxBytes, waitMs: receiveMs / 2 })
  const onlyModel = shelf.list.length === 1 ? shelf.list[0].offer.id : null
  const pinned = shelf.list.filter(({ offer }) => offer.isPinned)
  try {
    for (const { offer } of pinned) (await shelf.acquire(offer.id)).release()
  } catch (error) {
    await shelf.close(stoppingError())
    throw error
  }
  const only = onlyModel === null ? null : shelf.latest?.loaded.model
  const onError = (error: unknown) => asked.onWarning?.(describe(error))
  const onNotice = (line: string) => options.onLog?.(line)
  const context: ServerContext = {
    shelf,
    hubDesk: new HubDesk({
      shelf,
      hub: options.hub ?? null,
      offer: offer => shelf.add(shelfOffer(offer, sessionOptions(options))),
      onError,
      onNotice,
    }),
    onlyModel,
    modelFiles: only ? await ModelFiles.of(only, onlyModel as string) : null,
    scopeByKey: options.storeScope === 'key',
    watchers: new Set(),
    startedAt: nowSeconds(),
    admission,
    metrics: new Metrics({
      experts: () => totals.experts,
      stats: () => totals.stats,
      session: () => totals.session,
      slots: parallel,
      models: () => ({ ...shelf.counters, loaded: shelf.list.filter(({ loaded }) => loaded !== null).length }),
      active: () => admission.active,
      bodyBytes: () => bodyRoom.bytes,
    }),
    storedResponses: new ResponseStore(),
    bodyLimits,
    bodyRoom,
    streamLimits: { keepAliveMs: options.keepAliveMs, readerTimeoutMs: options.readerTimeoutMs },
    requestTimeoutMs: Math.min(options.requestTimeoutMs ?? HOUR_MS, LONGEST_TIMER_MS),
    onError,
    onNotice,
    images: options.images ?? 'refuse',
    draining: () => draining,
    refusing: () => refusing,
    stopping: stopping.signal,
  }
  const app = createApp(context, {
    guard: new Guard({ ...options, host }),
    files: options.webFolder === undefined ? null : await listStaticFiles(options.webFolder),
    onRefused: options.onLog,
  })
  const server = createAdaptorServer({
    fetch: app.fetch,
    overrideGlobalObjects: false,
    autoCleanupIncoming: false, // requestBody.ts reads what is left of a body, and Node one that nobody read
    serverOptions: {
      requestTimeout: receiveMs, // to receive a request; answers may take longer
      headersTimeout: Math.min(receiveMs, 15_000),
      connectionsCheckingInterval: Math.min(receiveMs, 5_000),
    },
  }) as Server
  answerHalfClosed(server)
  closeAfterBodies(server)
  server.keepAliveTimeout = 65_000
  server.maxHeadersCount = 100
  const address = await listen(server, host, port).catch(async error => {
    await shelf.close(stoppingError())
    throw error
  })
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${address}`,
    port: address,
    async stop(graceMs = 5_000) {
      draining = true
      const deadline = Date.now() + graceMs
      // A balancer that looks now and then has to see that nothing more is to be sent before nobody listens.
      await pause(Math.min(graceMs, options.drainMs ?? 0, LONGEST_TIMER_MS))
      refusing = true
      const closed = new Promise<void>(resolve => server.close(() => resolve()))
      server.closeIdleConnections()
      while (admission.active > 0 && Date.now() < deadline) await pause(25)
      stopping.abort(stoppingError())
      await context.hubDesk.pulls.close()
      await shelf.close(stoppingError())
      // What was cancelled gets a moment to say so.
      setTimeout(() => server.closeAllConnections(), 200)
      await closed
    },
  }
}

function ofLines(tell: ((line: string) => void) | undefined): ((line: string) => void) | undefined {
  return tell && (line => tell(logLine(line)))
}

function openShelf(models: Model | readonly ModelOffer[], options: ServeOptions): TotalledShelf {
  return new TotalledShelf(offers(models, options.modelId, sessionOptions(options)), {
    mostLoaded: options.maxLoaded ?? Number.POSITIVE_INFINITY,
    keepMs: options.keepLoadedMs ?? 10 * MINUTE_MS,
    isShortage: error => error instanceof MemoryPlanError || error instanceof OutOfMemoryError,
    onEvent: Array.isArray(models) ? options.onLog : undefined,
  })
}

function sessionOptions({ store, parallel, onLog, onWarning }: ServeOptions): SessionOptions {
  return { store, maxSequences: parallel ?? 8, onLog, onWarning }
}

/** A model pool whose totals include models that were unloaded. */
class TotalledShelf extends ModelShelf<LoadedModel> {
  readonly totals: ShelfTotals

  constructor(all: readonly Offer<LoadedModel>[], options: ShelfOptions) {
    super([], options)
    for (const offer of all) this.add(offer)
    this.totals = new ShelfTotals(() => this.list.flatMap(({ loaded }) => loaded ?? []))
  }

  override add(offer: Offer<LoadedModel>): void {
    super.add({
      ...offer,
      load: async hooks => (await offer.load(hooks)).onClose(loaded => this.totals.retire(loaded)),
    })
  }
}

/** One line for a named error, the stack for others. */
function describe(error: unknown): string {
  if (error instanceof MoefluxError) return logLine(`error: ${error.code}: ${error.message}`)
  return logLines(error instanceof Error ? (error.stack ?? error.message) : String(error))
}

/**
 * Closes a connection when both the answer and the body have ended, for clients that ask for a
 * close after the answer. Node closes it after the answer; if that came early (429, 413), a reset
 * refuses the rest of the body, and the client loses the answer before it has read it. The time for
 * a request to arrive limits how long this takes.
 */
function closeAfterBodies(server: Server): void {
  server.prependListener('request', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    if (outgoing.shouldKeepAlive || !hasBody(incoming)) return
    outgoing.shouldKeepAlive = true // keeps Node from closing it; endIfDone does
    const { socket } = incoming
    const endIfDone = () => {
      if (incoming.readableEnded && outgoing.writableFinished) socket.end()
    }
    incoming.once('end', endIfDone)
    outgoing.once('finish', endIfDone)
  })
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

async function listen(server: Server, host: string, port: number): Promise<number> {
  return await new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const detail = error.code === 'EADDRINUSE' ? 'the port is in use (choose another with --port)' : error.message
      reject(new ListenError(host, port, detail))
    })
    server.listen(port, host, () => {
      const address = server.address()
      resolve(typeof address === 'object' && address !== null ? address.port : port)
    })
  })
}

export class ListenError extends MoefluxError {
  constructor(host: string, port: number, detail: string) {
    super('LISTEN_FAILED', `cannot listen on ${host}:${port}: ${detail}`)
  }
}

async function pause(ms: number): Promise<void> {
  await new Promise(resolve => setTimeout(resolve, ms))
}
