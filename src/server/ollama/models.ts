// What ollama's API says of the model that is here: /api/tags, /api/ps, /api/show, /api/version.
import { createHash } from 'node:crypto'
import type { Context } from 'hono'
import type { Model } from '../../index.js'
import { ApiError } from '../apiError.js'
import { readBody } from '../requestBody.js'
import { chooseModel, type Service } from '../service.js'
import { showRequest } from './schemas.js'

/** Clients compare it with what they need; this is a version that has all that is answered here. */
export const SPOKEN_VERSION = '0.12.0'

export function tags(service: Service): object {
  return { models: service.shelf.list.map(({ offer, loaded }) => entry(service, offer.id, loaded?.model ?? null)) }
}

/** Those in memory; none says when it will go. */
export function running(service: Service): object {
  const inMemory = service.shelf.list.flatMap(({ offer, loaded }) =>
    loaded === null ? [] : [{ id: offer.id, model: loaded.model }],
  )
  return {
    models: inMemory.map(({ id, model }) => ({
      ...entry(service, id, model),
      size_vram: 0,
      context_length: model.contextLength,
      expires_at: '2318-01-01T00:00:00Z',
    })),
  }
}

function entry({ startedAt, modelFiles }: Service, id: string, model: Model | null): object {
  return {
    name: id,
    model: id,
    modified_at: new Date(startedAt * 1000).toISOString(),
    size: modelFiles === null ? 0 : modelFiles.entry.residentBytes + modelFiles.entry.expertBytes,
    digest: createHash('sha256').update(id).digest('hex'),
    details: details(model),
  }
}

export async function show(c: Context, service: Service): Promise<Response> {
  const { bodyLimits, bodyRoom, stopping, shelf } = service
  const { request, release } = await readBody(c, showRequest, bodyLimits, bodyRoom, stopping)
  release()
  if (!(request.model || request.name)) {
    throw new ApiError('invalid_request', 'model: want a name', { param: 'model' })
  }
  const id = chooseModel(service, request.model || request.name)
  const model = shelf.list.find(({ offer }) => offer.id === id)?.loaded?.model ?? null
  return c.json({
    modelfile: '',
    parameters: '',
    template: '',
    details: details(model),
    model_info: model === null ? {} : modelInfo(model),
    capabilities: ['completion', 'tools', 'thinking'],
    modified_at: new Date(service.startedAt * 1000).toISOString(),
  })
}

function modelInfo(model: Model): object {
  const { config } = model
  const family = config.modelType
  return {
    'general.architecture': family,
    'general.basename': model.name,
    [`${family}.context_length`]: model.contextLength,
    [`${family}.block_count`]: config.numLayers,
    [`${family}.embedding_length`]: config.hiddenSize,
    [`${family}.expert_count`]: config.numExperts,
    [`${family}.expert_used_count`]: model.expertsPerToken,
  }
}

/** Of a model that is not in memory, nothing but its name is known. */
function details(model: Model | null): object {
  const family = model?.config.modelType ?? ''
  return {
    parent_model: '',
    format: 'moeflux',
    family,
    families: family === '' ? [] : [family],
    parameter_size: '',
    quantization_level: '',
  }
}
