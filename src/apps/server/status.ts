// What the server reports of itself: to balancers and orchestrators, whether the process is alive
// and should get requests now; to clients, the models that it offers.
import { withoutFolders } from './apiError.js'
import type { ServerContext } from './serverContext.js'

interface Status {
  readonly status: 200 | 503
  readonly body: object
}

/**
 * GET /health. A process whose only model cannot compute any more is not alive: nothing will load
 * the model again.
 */
export function health({ shelf, onlyModel, draining }: ServerContext): Status {
  const failure = onlyModel === null ? null : shelf.latest?.loaded.model.failure
  const named = onlyModel === null ? { models: shelf.list.map(({ offer }) => offer.id) } : { model: onlyModel }
  if (failure) {
    const error = { code: failure.code, message: withoutFolders(failure) }
    return { status: 503, body: { status: 'failed', ...named, error } }
  }
  return { status: 200, body: { status: draining() ? 'stopping' : 'ok', ...named } }
}

/**
 * GET /ready: all pinned models are loaded and can compute, and the server is not about to stop.
 */
export function readiness({ shelf, draining }: ServerContext): Status {
  const pinned = shelf.list.filter(({ offer }) => offer.isPinned)
  if (draining()) return { status: 503, body: { status: 'draining' } }
  if (pinned.some(({ loaded }) => loaded?.model.failure)) return { status: 503, body: { status: 'failed' } }
  if (pinned.some(({ state }) => state !== 'loaded')) return { status: 503, body: { status: 'loading' } }
  return { status: 200, body: { status: 'ready' } }
}

/** GET /v1/models in the shape of either API: all models that are offered. */
export function modelList(server: ServerContext, anthropic: boolean): object {
  const ids = server.shelf.list.map(({ offer }) => offer.id)
  const data = ids.map(id => modelBody(server, id, anthropic))
  return anthropic ? { data, has_more: false, first_id: ids[0], last_id: ids.at(-1) } : { object: 'list', data }
}

/** A model with its context length and whether it is loaded; null if it is not offered. */
export function modelBody({ shelf, startedAt }: ServerContext, id: string, anthropic: boolean): object | null {
  const found = shelf.list.find(({ offer }) => offer.id === id)
  if (found === undefined) return null
  const { offer, loaded, state } = found
  const contextLength = loaded?.model.contextLength ?? offer.contextLength
  const about = { state, pinned: offer.isPinned }
  return anthropic
    ? {
        type: 'model',
        id,
        display_name: id,
        created_at: new Date(startedAt * 1000).toISOString(),
        max_input_tokens: contextLength,
        max_tokens: contextLength,
        ...about,
      }
    : {
        id,
        object: 'model',
        created: startedAt,
        owned_by: 'moeflux',
        context_length: contextLength,
        max_model_len: contextLength, // as vLLM calls it
        ...about,
      }
}
