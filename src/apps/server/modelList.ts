// GET /v1/models in the shape of either API: every model that is offered, with its context and where it is now.
import type { Service } from './serverContext.js'

export function modelList(service: Service, anthropic: boolean): object {
  const ids = service.shelf.list.map(({ offer }) => offer.id)
  const data = ids.map(id => modelBody(service, id, anthropic))
  return anthropic ? { data, has_more: false, first_id: ids[0], last_id: ids.at(-1) } : { object: 'list', data }
}

/** Null where there is no such model. */
export function modelBody({ shelf, startedAt }: Service, id: string, anthropic: boolean): object | null {
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
