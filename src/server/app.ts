// The routes. Every request passes the guard first; every error leaves in the shape of the API that it was asked by.
import { type Context, Hono } from 'hono'
import { errorBody as anthropicError, countTokens, messages } from './anthropic/messages.js'
import { ApiError, isAbort, toApiError } from './apiError.js'
import type { Guard } from './guard.js'
import { newId } from './ids.js'
import { chatCompletions } from './openai/chat.js'
import { completions } from './openai/completions.js'
import { deleteResponse, ResponseStore, responses, storedResponse } from './openai/responses.js'
import { errorBody as openaiError } from './openai/shapes.js'
import type { Service } from './service.js'
import { type StaticFiles, staticFile } from './staticFiles.js'

const OPEN_PATHS = new Set(['/health'])

export interface AppOptions {
  readonly guard: Guard
  readonly files: StaticFiles | null // the web UI, where it is built
  readonly onError?: (error: unknown) => void
}

export function createApp(service: Service, { guard, files, onError }: AppOptions): Hono {
  const app = new Hono()
  const stored = new ResponseStore()

  app.use(async (c, next) => {
    const { method, path } = c.req
    const cors = guard.corsOrigin(c.req.header('origin') ?? null)
    if (cors !== null) {
      c.header('access-control-allow-origin', cors)
      c.header('vary', 'origin')
    }
    const isPage = files !== null && method === 'GET' && !path.startsWith('/v1/') && path !== '/metrics'
    guard.check(c.req.raw, OPEN_PATHS.has(path) || isPage || method === 'OPTIONS')
    if (method === 'OPTIONS') {
      c.header('access-control-allow-methods', 'GET, POST, DELETE')
      c.header('access-control-allow-headers', c.req.header('access-control-request-headers') ?? '*')
      c.header('access-control-max-age', '600')
      return c.body(null, 204)
    }
    await next()
    service.metrics.request(routeName(path), c.res.status)
  })

  app.get('/health', c => c.json({ status: service.draining() ? 'stopping' : 'ok', model: service.modelId }))
  app.get('/metrics', async c =>
    c.text(await service.metrics.registry.metrics(), 200, { 'content-type': service.metrics.registry.contentType }),
  )
  app.get('/v1/models', c => c.json(modelList(c, service)))
  app.get('/v1/models/:id{.+}', c => {
    if (c.req.param('id') !== service.modelId)
      throw new ApiError('not_found', `there is no model '${c.req.param('id')}'`, { code: 'model_not_found' })
    return c.json(modelBody(c, service))
  })
  const post: Record<string, (c: Context) => Promise<Response>> = {
    '/v1/chat/completions': c => chatCompletions(c, service),
    '/v1/completions': c => completions(c, service),
    '/v1/responses': c => responses(c, service, stored),
    '/v1/messages': c => messages(c, service),
    '/v1/messages/count_tokens': c => countTokens(c, service),
  }
  for (const [path, handler] of Object.entries(post)) {
    app.post(path, c => {
      if (service.draining()) throw new ApiError('overloaded', 'the server is shutting down')
      return handler(c)
    })
    app.all(path, () => {
      throw new ApiError('invalid_request', `${path} takes POST`, { status: 405 })
    })
  }
  app.get('/v1/responses/:id', c => storedResponse(c, stored, c.req.param('id')))
  app.delete('/v1/responses/:id', c => deleteResponse(c, stored, c.req.param('id')))
  app.get('*', async c => {
    const file = files === null ? null : await staticFile(files, c.req.path)
    if (file !== null) return file
    if (c.req.path === '/')
      return c.text(
        `moeflux serves ${service.modelId}\n\nOpenAI API: /v1   Anthropic API: /v1/messages   /health   /metrics\n`,
      )
    throw notFound(c)
  })
  app.notFound(c => errorResponse(c, notFound(c)))
  app.onError((error, c) => {
    const failure = toApiError(error)
    if (failure.kind === 'server' && !isAbort(error)) onError?.(error)
    service.metrics.request(routeName(c.req.path), failure.status)
    return errorResponse(c, failure)
  })
  return app
}

function notFound(c: Context): ApiError {
  return new ApiError('not_found', `there is no ${c.req.method} ${c.req.path.slice(0, 200)}`)
}

function errorResponse(c: Context, error: ApiError): Response {
  const { retryAfterSeconds } = error.details
  if (retryAfterSeconds !== undefined) c.header('retry-after', String(retryAfterSeconds))
  if (speaksAnthropic(c)) {
    const requestId = newId('req_')
    c.header('request-id', requestId)
    return c.json(anthropicError(error, requestId), error.status as 400)
  }
  return c.json(openaiError(error), error.status as 400)
}

function speaksAnthropic(c: Context): boolean {
  return c.req.path.startsWith('/v1/messages') || c.req.header('anthropic-version') !== undefined
}

/** Labels of a metric must be few: paths that nobody serves count as one. */
function routeName(path: string): string {
  return /^\/(v1\/(models|chat\/completions|completions|responses|messages(\/count_tokens)?)|health|metrics)?$/.test(
    path,
  )
    ? path
    : 'other'
}

function modelBody(c: Context, service: Service): object {
  const created = service.startedAt
  return speaksAnthropic(c)
    ? {
        type: 'model',
        id: service.modelId,
        display_name: service.modelId,
        created_at: new Date(created * 1000).toISOString(),
      }
    : { id: service.modelId, object: 'model', created, owned_by: 'moeflux' }
}

function modelList(c: Context, service: Service): object {
  const data = [modelBody(c, service)]
  return speaksAnthropic(c)
    ? { data, has_more: false, first_id: service.modelId, last_id: service.modelId }
    : { object: 'list', data }
}
