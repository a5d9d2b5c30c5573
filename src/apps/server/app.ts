// The routes, each with its steps. Every request passes the guard first; every error has the shape
// of the API that was asked.
import { type Context, Hono } from 'hono'
import * as anthropic from './anthropic/messages.js'
import { countRequest, messagesRequest } from './anthropic/schemas.js'
import { ApiError, isOwnFault, toApiError } from './apiError.js'
import { engineBody, engineEvents } from './engineEvents.js'
import type { Guard } from './guard.js'
import { hubForecast, hubLoad, hubPull, hubRequest, hubStop } from './hub/hubRoutes.js'
import { newId } from './ids.js'
import { accepting, admit, type Env, readRequest, readWithoutPermit, withModel } from './middleware.js'
import * as ollama from './ollama/answers.js'
import { embed, embeddings as ollamaEmbeddings } from './ollama/embeddings.js'
import { running, SPOKEN_VERSION, show, tags } from './ollama/models.js'
import { pull } from './ollama/pull.js'
import * as ollamaSchemas from './ollama/schemas.js'
import { chatCompletions } from './openai/chat.js'
import { chatRequest, completionRequest, embeddingRequest } from './openai/chatSchema.js'
import { errorEvent, errorBody as openaiError } from './openai/chatShapes.js'
import { completionCount, completions } from './openai/completions.js'
import { embeddings } from './openai/embeddings.js'
import { earlyFailure } from './openai/responseBuilder.js'
import { deleteResponse, responses, storedResponse } from './openai/responses.js'
import { responsesRequest } from './openai/responsesSchema.js'
import { type ServerContext, unknownModel } from './serverContext.js'
import { type StaticFiles, staticFile } from './staticFiles.js'
import { health, modelBody, modelList, readiness } from './status.js'

const OPEN_PATHS = new Set(['/health', '/ready'])

export interface AppOptions {
  readonly guard: Guard
  readonly files: StaticFiles | null // the web UI, where it is built
  /** A request that was refused or failed. */
  readonly onRefused?: (line: string) => void
}

type AppContext = Context<Env>

export function createApp(server: ServerContext, { guard, files, onRefused }: AppOptions): Hono<Env> {
  const app = new Hono<Env>()

  app.use(async (c, next) => {
    const requestId = newId('req_')
    c.set('requestId', requestId)
    c.set('server', server)
    c.header('x-request-id', requestId)
    c.header('request-id', requestId)
    await next()
    if (server.draining() && isReceived(c)) c.header('connection', 'close') // the next request is another server's
    server.metrics.request(routeName(c.req.path), c.res.status)
  })
  app.use(async (c, next) => {
    const { method, path } = c.req
    const cors = guard.corsOrigin(c.req.header('origin') ?? null)
    if (cors !== null) {
      c.header('access-control-allow-origin', cors)
      c.header('vary', 'origin')
    }
    const isPage = files?.has(path) === true && (method === 'GET' || method === 'HEAD')
    c.set('keyScope', guard.check(c.req.raw, OPEN_PATHS.has(path) || isPage || method === 'OPTIONS'))
    if (method === 'OPTIONS') {
      c.header('access-control-allow-methods', 'GET, POST, DELETE')
      c.header('access-control-allow-headers', c.req.header('access-control-request-headers') ?? '*')
      c.header('access-control-max-age', '600')
      return c.body(null, 204)
    }
    await next()
  })

  app.get('/health', c => {
    const { body, status } = health(server)
    return c.json(body, status)
  })
  app.get('/ready', c => {
    const { body, status } = readiness(server)
    return c.json(body, status)
  })
  app.get('/metrics', async c =>
    c.text(await server.metrics.registry.metrics(), 200, { 'content-type': server.metrics.registry.contentType }),
  )
  app.get('/engine', c => c.json(engineBody(server, c.req.query('model'))))
  app.get('/engine/events', c => engineEvents(c, server))
  app.get('/models/index.json', c => c.json({ models: server.modelFiles ? [server.modelFiles.entry] : [] }))
  app.get('/models/*', c => {
    const path = c.req.path.slice('/models/'.length)
    if (server.modelFiles === null) throw new ApiError('not_found', 'the files of this model are not listed anywhere')
    return server.modelFiles.respond(c, path, server.streamLimits.readerTimeoutMs)
  })
  app.get('/v1/models', c => c.json(modelList(server, speaksAnthropic(c))))
  app.get('/v1/models/:id{.+}', c => {
    const body = modelBody(server, c.req.param('id'), speaksAnthropic(c))
    if (body === null) throw unknownModel(c.req.param('id'))
    return c.json(body)
  })

  app.post(
    '/v1/chat/completions',
    accepting,
    admit,
    readRequest(chatRequest, request => request.n ?? 1),
    withModel(chatCompletions, { onError: errorEvent }),
  )
  app.post(
    '/v1/completions',
    accepting,
    admit,
    readRequest(completionRequest, completionCount),
    withModel(completions, { onError: errorEvent }),
  )
  app.post('/v1/embeddings', accepting, admit, readRequest(embeddingRequest), withModel(embeddings))
  app.post(
    '/v1/responses',
    accepting,
    admit,
    readRequest(responsesRequest),
    withModel(responses, { onError: earlyFailure }),
  )
  app.get('/v1/responses/:id', c => storedResponse(c, c.req.param('id')))
  app.delete('/v1/responses/:id', c => deleteResponse(c, c.req.param('id')))

  app.post(
    '/v1/messages',
    accepting,
    admit,
    readRequest(messagesRequest),
    withModel(anthropic.messages, { onError: anthropic.errorEvent }),
  )
  app.post('/v1/messages/count_tokens', accepting, admit, readRequest(countRequest), withModel(anthropic.countTokens))

  app.post(
    '/api/chat',
    accepting,
    admit,
    readRequest(ollamaSchemas.chatRequest),
    withModel(ollama.chat, { withoutModel: ollama.chatWithoutModel }),
  )
  app.post(
    '/api/generate',
    accepting,
    admit,
    readRequest(ollamaSchemas.generateRequest),
    withModel(ollama.generate, { withoutModel: ollama.generateWithoutModel }),
  )
  app.post('/api/embed', accepting, admit, readRequest(ollamaSchemas.embedRequest), withModel(embed))
  app.post(
    '/api/embeddings',
    accepting,
    admit,
    readRequest(ollamaSchemas.embeddingsRequest),
    withModel(ollamaEmbeddings),
  )
  app.post('/api/show', accepting, readWithoutPermit(ollamaSchemas.showRequest), show)
  app.post('/api/pull', accepting, readWithoutPermit(ollamaSchemas.pullRequest), pull)
  app.get('/api/tags', async c => c.json(await tags(server)))
  app.get('/api/ps', async c => c.json(await running(server)))
  app.get('/api/version', c => c.json({ version: SPOKEN_VERSION }))

  app.get('/hub', async c => c.json(await server.hubDesk.body()))
  app.post('/hub/load', accepting, readWithoutPermit(hubRequest), hubLoad)
  app.post('/hub/pull', accepting, readWithoutPermit(hubRequest), hubPull)
  app.post('/hub/stop', accepting, readWithoutPermit(hubRequest), hubStop)
  app.post('/hub/forecast', accepting, readWithoutPermit(hubRequest), hubForecast)

  const posted = app.routes.filter(({ method }) => method === 'POST').map(({ path }) => path)
  for (const path of new Set(posted)) app.all(path, refuseMethod)

  app.get('*', async c => {
    const file = files === null ? null : await staticFile(files, c.req.path)
    if (file !== null) return file
    if (c.req.path === '/')
      return c.text(
        `moeflux serves ${server.shelf.list.map(({ offer }) => offer.id).join(', ')}\n\nOpenAI API: /v1   Anthropic API: /v1/messages   ollama API: /api   /health   /ready   /metrics\n`,
      )
    throw notFound(c)
  })
  app.notFound(c => errorResponse(c, notFound(c)))
  app.onError((error, c) => {
    const failure = toApiError(error)
    if (isOwnFault(error)) server.onError(error)
    onRefused?.(`${c.req.method} ${quoted(c.req.path)} ${failure.status}: ${quoted(failure.message)}`)
    return errorResponse(c, failure)
  })
  return app
}

/** Whether the request has arrived in full. An earlier close may take the answer from the client. */
function isReceived({ env }: AppContext): boolean {
  return env?.incoming?.complete === true
}

/** Answers requests to POST routes with another method. */
function refuseMethod(c: AppContext): never {
  c.header('allow', 'POST')
  throw new ApiError('invalid_request', `${c.req.path} takes POST`, { status: 405 })
}

function notFound(c: AppContext): ApiError {
  return new ApiError('not_found', `there is no ${c.req.method} ${c.req.path.slice(0, 200)}`)
}

/** Text of a request as one line of a log. */
function quoted(text: string): string {
  const short = text.length > 300 ? `${text.slice(0, 300)}…` : text
  return JSON.stringify(short).slice(1, -1).replaceAll('\\"', '"')
}

function errorResponse(c: AppContext, error: ApiError): Response {
  const { retryAfterSeconds } = error.details
  if (retryAfterSeconds !== undefined) c.header('retry-after', String(retryAfterSeconds))
  return c.json(errorBody(c, error), error.status as 400)
}

function errorBody(c: AppContext, error: ApiError): object {
  if (c.req.path.startsWith('/api/')) return ollama.errorBody(error)
  return speaksAnthropic(c) ? anthropic.errorBody(error, c.get('requestId')) : openaiError(error)
}

function speaksAnthropic(c: AppContext): boolean {
  return c.req.path.startsWith('/v1/messages') || c.req.header('anthropic-version') !== undefined
}

/** The label of a metric for a path; labels must be few, so all unknown paths share one. */
function routeName(path: string): string {
  if (path.startsWith('/models/')) return '/models'
  return /^\/(v1\/(models|chat\/completions|completions|responses|messages(\/count_tokens)?|embeddings)|api\/(chat|generate|embed|embeddings|tags|ps|show|pull|version)|hub(\/(load|pull|stop|forecast))?|health|ready|metrics|engine(\/events)?)?$/.test(
    path,
  )
    ? path
    : 'other'
}
