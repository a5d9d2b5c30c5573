// POST /v1/embeddings: one vector for each text or list of token ids.
import type { Context } from 'hono'
import { embedInputs } from '../embedInputs.js'
import { jsonAnswer, LazyList } from '../jsonAnswer.js'
import type { Env, Served } from '../middleware.js'
import type { EmbeddingRequest } from './chatSchema.js'
import { promptList } from './chatShapes.js'

export async function embeddings(
  c: Context<Env<EmbeddingRequest>>,
  request: EmbeddingRequest,
  served: Served,
): Promise<Response> {
  const { server, active } = c.var
  const inputs = promptList(request.input)
  const { vectors, tokens } = await embedInputs(server, served, inputs, request.dimensions, { signal: active.signal })
  const shape = request.encoding_format === 'base64' ? base64 : Array.from<number>
  return jsonAnswer(c, {
    object: 'list',
    data: new LazyList([...vectors.entries()], ([index, vector]) => {
      return { object: 'embedding', index, embedding: shape(vector) }
    }),
    model: request.model ?? served.modelId,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  })
}

/** Float32, little-endian. */
function base64(vector: Float32Array): string {
  return Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('base64')
}
