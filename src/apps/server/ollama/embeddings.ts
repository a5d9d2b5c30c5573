// POST /api/embed, and /api/embeddings as it was before that: vectors of texts.
import type { Context } from 'hono'
import { embedInputs } from '../embedInputs.js'
import { jsonAnswer, LazyList } from '../jsonAnswer.js'
import type { ServerContext } from '../serverContext.js'
import { onePlace, visit } from '../visit.js'
import { embeddingsRequest, embedRequest } from './schemas.js'

/** Texts that are too long are cut unless the client says otherwise, as ollama does. */
export async function embed(c: Context, server: ServerContext): Promise<Response> {
  return await visit(c, server, embedRequest, onePlace, async (stay, request, server) => {
    const started = performance.now()
    const inputs = typeof request.input === 'string' ? [request.input].filter(Boolean) : (request.input ?? [])
    const truncate = request.truncate !== false
    const { vectors, tokens } = await embedInputs(server, server, inputs, request.dimensions, {
      truncate,
      signal: stay.signal,
    })
    return jsonAnswer(c, {
      model: request.model ?? server.modelId,
      embeddings: new LazyList(vectors, vector => Array.from(vector)),
      total_duration: Math.round((performance.now() - started) * 1e6), // nanoseconds
      load_duration: 0,
      prompt_eval_count: tokens,
    })
  })
}

export async function embeddings(c: Context, server: ServerContext): Promise<Response> {
  return await visit(c, server, embeddingsRequest, onePlace, async (stay, request, server) => {
    const prompts = request.prompt ? [request.prompt] : [] // none: the model is loaded
    const { vectors } = await embedInputs(server, server, prompts, null, { truncate: true, signal: stay.signal })
    return jsonAnswer(c, { embedding: Array.from(vectors[0] ?? []) })
  })
}
