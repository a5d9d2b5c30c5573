// What ollama's API says of the model that is here: /api/tags, /api/ps, /api/show, /api/version.
import { createHash } from 'node:crypto'
import type { Context } from 'hono'
import type { ModelConfig } from '../../../index.js'
import { ApiError } from '../apiError.js'
import type { LoadedModel } from '../loadedModel.js'
import type { Env } from '../middleware.js'
import type { ShelfEntry } from '../modelPool.js'
import { chooseModel, type ServerContext } from '../serverContext.js'
import type { ShowRequest } from './schemas.js'

/** Clients compare it with what they need; this is a version that has all that is answered here. */
export const SPOKEN_VERSION = '0.12.0'

/** What stays, stays past this. */
const NEVER = new Date('2318-01-01T00:00:00Z')

type Entry = ShelfEntry<LoadedModel>

export async function tags(server: ServerContext): Promise<object> {
  return { models: await Promise.all(server.shelf.list.map(each => entry(server, each))) }
}

/** Those in memory, and when they will go. */
export async function running(server: ServerContext): Promise<object> {
  const inMemory = server.shelf.list.filter(({ loaded }) => loaded !== null)
  const models = inMemory.map(async each => ({
    ...(await entry(server, each)),
    size_vram: 0,
    context_length: each.loaded?.model.contextLength,
    expires_at: new Date(each.idleUntil ?? NEVER).toISOString(),
  }))
  return { models: await Promise.all(models) }
}

async function entry(server: ServerContext, each: Entry): Promise<object> {
  const { id } = each.offer
  const about = await server.hubDesk.about(id)
  return {
    name: id,
    model: id,
    modified_at: new Date(server.startedAt * 1000).toISOString(),
    size: about?.bytes ?? fileBytes(server, id),
    digest: createHash('sha256').update(id).digest('hex'),
    details: details(each.loaded?.model.config ?? about?.config ?? null),
  }
}

function fileBytes({ onlyModel, modelFiles }: ServerContext, id: string): number {
  if (modelFiles === null || id !== onlyModel) return 0
  return modelFiles.entry.residentBytes + modelFiles.entry.expertBytes
}

export async function show(c: Context<Env<ShowRequest>>): Promise<Response> {
  const { server, request } = c.var
  if (!(request.model || request.name)) {
    throw new ApiError('invalid_request', 'model: want a name', { param: 'model' })
  }
  const id = chooseModel(server, request.model || request.name)
  const found = server.shelf.find(id) as Entry
  const config = found.loaded?.model.config ?? (await server.hubDesk.about(id))?.config ?? null
  return c.json({
    modelfile: '',
    parameters: '',
    template: '',
    details: details(config),
    model_info: config === null ? {} : modelInfo(found, config),
    capabilities: ['completion', 'tools', 'thinking'],
    modified_at: new Date(server.startedAt * 1000).toISOString(),
  })
}

/** Known before a model is in memory, too: clients ask for the length of its context when they list it. */
function modelInfo({ offer, loaded }: Entry, config: ModelConfig): object {
  const family = config.modelType
  return {
    'general.architecture': family,
    'general.basename': loaded?.model.name ?? offer.id,
    [`${family}.context_length`]: loaded?.model.contextLength ?? offer.contextLength ?? config.maxPositionEmbeddings,
    [`${family}.block_count`]: config.numLayers,
    [`${family}.embedding_length`]: config.hiddenSize,
    [`${family}.expert_count`]: config.numExperts,
    [`${family}.expert_used_count`]: loaded?.model.expertsPerToken ?? config.expertsPerToken,
  }
}

/** Of a model whose files tell nothing before they are opened, nothing but its name is known. */
function details(config: ModelConfig | null): object {
  const family = config?.modelType ?? ''
  return {
    parent_model: '',
    format: 'moeflux',
    family,
    families: family === '' ? [] : [family],
    parameter_size: '',
    quantization_level: '',
  }
}
