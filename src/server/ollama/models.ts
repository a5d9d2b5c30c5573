// What ollama's API says of the model that is here: /api/tags, /api/ps, /api/show, /api/version.
import { createHash } from 'node:crypto'
import type { Context } from 'hono'
import type { Model } from '../../session/openModel.js'
import { ApiError } from '../apiError.js'
import { readBody } from '../requestBody.js'
import type { Service } from '../service.js'
import { showRequest } from './schemas.js'

/** Clients compare it with what they need; this is a version that has all that is answered here. */
export const SPOKEN_VERSION = '0.12.0'

export function tags(service: Service): object {
  const { model, modelId, startedAt, modelFiles } = service
  const entry = {
    name: modelId,
    model: modelId,
    modified_at: new Date(startedAt * 1000).toISOString(),
    size: modelFiles === null ? 0 : modelFiles.entry.residentBytes + modelFiles.entry.expertBytes,
    digest: createHash('sha256').update(modelId).digest('hex'),
    details: details(model),
  }
  return { models: [entry] }
}

/** Those in memory: the same, without an end to their time. */
export function running(service: Service): object {
  const { models } = tags(service) as { models: object[] }
  const memory = { size_vram: 0, context_length: service.model.contextLength, expires_at: '2318-01-01T00:00:00Z' }
  return { models: models.map(model => ({ ...model, ...memory })) }
}

export async function show(c: Context, service: Service): Promise<Response> {
  const { bodyLimits, bodyRoom, stopping, model } = service
  const { request, release } = await readBody(c, showRequest, bodyLimits, bodyRoom, stopping)
  release()
  if (!(request.model || request.name)) {
    throw new ApiError('invalid_request', 'model: want a name', { param: 'model' })
  }
  const { config } = model
  const family = config.modelType
  return c.json({
    modelfile: '',
    parameters: '',
    template: '',
    details: details(model),
    model_info: {
      'general.architecture': family,
      'general.basename': model.name,
      [`${family}.context_length`]: model.contextLength,
      [`${family}.block_count`]: config.numLayers,
      [`${family}.embedding_length`]: config.hiddenSize,
      [`${family}.expert_count`]: config.numExperts,
      [`${family}.expert_used_count`]: model.expertsPerToken,
    },
    capabilities: ['completion', 'tools', 'thinking'],
    modified_at: new Date(service.startedAt * 1000).toISOString(),
  })
}

function details({ config }: Model): object {
  const family = config.modelType
  return {
    parent_model: '',
    format: 'moeflux',
    family,
    families: [family],
    parameter_size: '',
    quantization_level: '',
  }
}
