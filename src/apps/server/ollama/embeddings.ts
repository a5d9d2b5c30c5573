// POST /api/embed, and /api/embeddings as it was before that: vectors of texts.
import type { Context } from 'hono'
import { embedInputs } from '../embedInputs.js'
import { jsonAnswer, LazyList } from '../jsonAnswer.js'
import type { Env, Served } from '../middleware.js'
import type { EmbeddingsRequest, EmbedRequest } from './schemas.js'

/** Texts that are too long are cut unless the client says otherwise, as ollama does. */
export async function embed(c: Context<Env<EmbedRequest>>, request: EmbedRequest, served: Served): Promise<Response> {
  const { server, active } = c.var
  const started = performance.now()
  const inputs = typeof request.input === 'string' ? [request.input].filter(Boolean) : (request.input ?? [])
  const options = { truncate: request.truncate !== false, signal: active.signal }
  const { vectors, tokens } = await embedInputs(server, served, inputs, request.dimensions, options)
  return jsonAnswer(c, {
    model: request.model ?? served.modelId,
    embeddings: new LazyList(vectors, vector => Array.from(vector)),
    total_duration: Math.round((performance.now() - started) * 1e6), // nanoseconds
    load_duration: 0,
    prompt_eval_count: tokens,
  })
}

export async function embeddings(
  c: Context<Env<EmbeddingsRequest>>,
  request: EmbeddingsRequest,
  served: Served,
): Promise<Response> {
  const { server, active } = c.var
  const prompts = request.prompt ? [request.prompt] : [] // none: the model is loaded
  const { vectors } = await embedInputs(server, served, prompts, null, { truncate: true, signal: active.signal })
  return jsonAnswer(c, { embedding: Array.from(vectors[0] ?? []) })
}
