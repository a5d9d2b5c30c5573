// What balancers and orchestrators ask: whether the process is alive, and whether it should get requests now.
import { withoutFolders } from './apiError.js'
import type { Service } from './serverContext.js'

interface Told {
  readonly status: 200 | 503
  readonly body: object
}

/** Alive. A model that cannot compute any more, and that nothing will load again, is not. */
export function health({ shelf, onlyModel, draining }: Service): Told {
  const failure = onlyModel === null ? null : shelf.latest?.loaded.model.failure
  const named = onlyModel === null ? { models: shelf.list.map(({ offer }) => offer.id) } : { model: onlyModel }
  if (failure) {
    const error = { code: failure.code, message: withoutFolders(failure) }
    return { status: 503, body: { status: 'failed', ...named, error } }
  }
  return { status: 200, body: { status: draining() ? 'stopping' : 'ok', ...named } }
}

/** Ready: all models that always are in memory are there and well, and the server is not about to stop. */
export function readiness({ shelf, draining }: Service): Told {
  const pinned = shelf.list.filter(({ offer }) => offer.isPinned)
  if (draining()) return { status: 503, body: { status: 'draining' } }
  if (pinned.some(({ loaded }) => loaded?.model.failure)) return { status: 503, body: { status: 'failed' } }
  if (pinned.some(({ state }) => state !== 'loaded')) return { status: 503, body: { status: 'loading' } }
  return { status: 200, body: { status: 'ready' } }
}
