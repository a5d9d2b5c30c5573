// The steps of a POST route, in the order in which it lists them: accepting, admit, readRequest,
// withModel; accepting, readWithoutPermit and a handler where nothing is computed. A step passes
// the request on, or throws what the client gets.
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Context, Handler, MiddlewareHandler } from 'hono'
import type { z } from 'zod'
import type { Model, Session } from '../../index.js'
import { ActiveRequest } from './activeRequest.js'
import { reportingFaults, stoppingError } from './apiError.js'
import type { ErrorEvent } from './eventSource.js'
import { loadingStream } from './loadingStream.js'
import { readBody } from './requestBody.js'
import { chooseModel, type ServerContext } from './serverContext.js'

/** What the steps of a request leave for those after them. */
export type Env<T = unknown> = {
  Bindings: { readonly incoming?: IncomingMessage; readonly outgoing?: ServerResponse } // Node's, of the request
  Variables: {
    requestId: string
    keyScope: string // tells API keys apart; '' for none
    server: ServerContext
    active: ActiveRequest // set by admit
    request: T // set by readRequest
  }
}

/** The model of a request, while the request is active. */
export interface Served {
  readonly model: Model
  readonly session: Session
  readonly modelId: string
}

/** What a request says of its model, and of how it wants the answer. */
interface ModelRequest {
  readonly model?: string | null
  readonly stream?: boolean | null
  readonly keep_alive?: number | null // ms
}

/** An endpoint: answers a request when its model is in memory. */
type Answer<T> = (c: Context<Env<T>>, request: T, served: Served) => Promise<Response>

interface AnswerOptions<T> {
  /** An error as an event. With it, a stream begins before its model is loaded. */
  readonly onError?: ErrorEvent
  /** An answer that needs no model in memory, or null. */
  readonly withoutModel?: (c: Context<Env<T>>, request: T, id: string) => Response | null
}

/** A request whose body takes longer to arrive returns its permit until the body has arrived. */
const BODY_ARRIVAL_MS = 2_000

/** Refuses requests while the server stops. */
export const accepting: MiddlewareHandler<Env> = async (c, next) => {
  if (c.get('server').refusing()) throw stoppingError()
  await next()
}

/** Takes a permit or answers 429; ends the request after the later steps, unless a stream does. */
export const admit: MiddlewareHandler<Env> = async (c, next) => {
  const active = new ActiveRequest(c.get('server'), c)
  c.set('active', active)
  try {
    await next() // returns also when a later step throws an Error: hono has answered it by then
  } finally {
    if (!active.isHandedOver) active.end()
  }
}

/** Reads the body, then takes the permits that what it asks for needs, or answers 429. */
export function readRequest<T>(
  schema: z.ZodType<T>,
  permits: (request: T) => number = () => 1,
): MiddlewareHandler<Env<T>> {
  return async (c, next) => {
    const { server, active } = c.var
    const slow = setTimeout(() => active.resize(0), BODY_ARRIVAL_MS)
    try {
      const { request, release } = await readBody(c, schema, server.bodyLimits, server.bodyRoom, active.signal)
      active.releaseAtEnd(release)
      active.signal.throwIfAborted()
      active.resize(permits(request))
      c.set('request', request)
    } finally {
      clearTimeout(slow)
    }
    await next()
  }
}

/** Reads the body of a request that computes nothing, and frees the memory of the body at once. */
export function readWithoutPermit<T>(schema: z.ZodType<T>): MiddlewareHandler<Env<T>> {
  return async (c, next) => {
    const { bodyLimits, bodyRoom, stopping } = c.get('server')
    const { request, release } = await readBody(c, schema, bodyLimits, bodyRoom, stopping)
    release()
    c.set('request', request)
    await next()
  }
}

/** Loads the model that the request names, if it is not in memory, and answers. */
export function withModel<T extends ModelRequest>(
  answer: Answer<T>,
  { onError, withoutModel }: AnswerOptions<T> = {},
): Handler<Env<T>> {
  return async c => {
    const { server, active, request } = c.var
    const id = chooseModel(server, request.model)
    const early = withoutModel?.(c, request, id) ?? null
    if (early !== null) return early
    const answered = async () => await answer(c, request, await leaseModel(c, id))
    if (!onError || !request.stream || server.shelf.isLoaded(id)) return await answered()
    active.handOver() // hono takes no response after this one: the answer continues in this stream
    return loadingStream(c, active, () => loadingLine(server, id), answered, reportingFaults(server.onError, onError))
  }
}

/** The model when it is loaded, leased until the request ends. */
async function leaseModel<T extends ModelRequest>(c: Context<Env<T>>, id: string): Promise<Served> {
  const { server, active, request } = c.var
  const lease = await server.shelf.acquire(id, active.signal)
  active.releaseAtEnd(() => lease.release()) // at once if the request ended while the model was loading
  active.signal.throwIfAborted()
  if (request.keep_alive != null) lease.keepFor(request.keep_alive)
  const { model, session } = lease.loaded
  return { model, session, modelId: id }
}

function loadingLine({ shelf }: ServerContext, id: string): string {
  const { loaded, total } = shelf.find(id)?.progress ?? { loaded: 0, total: 0 }
  return `loading ${JSON.stringify(id)}${total > 0 ? ` ${Math.floor((loaded / total) * 100)}%` : ''}`
}
