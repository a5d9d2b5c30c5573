// What balancers and orchestrators ask: whether the process is alive, and whether it should get requests now.
import { withoutFolders } from './apiError.js'
import type { ServerContext } from './serverContext.js'

interface Told {
  readonly status: 200 | 503
  readonly body: object
}

/** Alive. A model that cannot compute any more, and that nothing will load again, is not. */
export function health({ shelf, onlyModel, draining }: ServerContext): Told {
  const failure = onlyModel === null ? null : shelf.latest?.loaded.model.failure
  const named = onlyModel === null ? { models: shelf.list.map(({ offer }) => offer.id) } : { model: onlyModel }
  if (failure) {
    const error = { code: failure.code, message: withoutFolders(failure) }
    return { status: 503, body: { status: 'failed', ...named, error } }
  }
  return { status: 200, body: { status: draining() ? 'stopping' : 'ok', ...named } }
}

/** Ready: all models that always are in memory are there and well, and the server is not about to stop. */
export function readiness({ shelf, draining }: ServerContext): Told {
  const pinned = shelf.list.filter(({ offer }) => offer.isPinned)
  if (draining()) return { status: 503, body: { status: 'draining' } }
  if (pinned.some(({ loaded }) => loaded?.model.failure)) return { status: 503, body: { status: 'failed' } }
  if (pinned.some(({ state }) => state !== 'loaded')) return { status: 503, body: { status: 'loading' } }
  return { status: 200, body: { status: 'ready' } }
}

/** GET /v1/models in the shape of either API: every model that is offered, with its context and where it is now. */
export function modelList(server: ServerContext, anthropic: boolean): object {
  const ids = server.shelf.list.map(({ offer }) => offer.id)
  const data = ids.map(id => modelBody(server, id, anthropic))
  return anthropic ? { data, has_more: false, first_id: ids[0], last_id: ids.at(-1) } : { object: 'list', data }
}

/** Null where there is no such model. */
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
