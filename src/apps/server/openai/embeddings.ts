// POST /v1/embeddings: one vector for each text or list of token ids.
import type { Context } from 'hono'
import { embedInputs } from '../embedInputs.js'
import { jsonAnswer, LazyList } from '../jsonAnswer.js'
import type { ServerContext } from '../serverContext.js'
import { onePlace, visit } from '../visit.js'
import { embeddingRequest } from './chatSchema.js'
import { promptList } from './chatShapes.js'

export async function embeddings(c: Context, server: ServerContext): Promise<Response> {
  return await visit(c, server, embeddingRequest, onePlace, async (stay, request, server) => {
    const { vectors, tokens } = await embedInputs(server, promptList(request.input), request.dimensions, {
      signal: stay.signal,
    })
    const shape = request.encoding_format === 'base64' ? base64 : Array.from<number>
    return jsonAnswer(c, {
      object: 'list',
      data: new LazyList([...vectors.entries()], ([index, vector]) => {
        return { object: 'embedding', index, embedding: shape(vector) }
      }),
      model: request.model ?? server.modelId,
      usage: { prompt_tokens: tokens, total_tokens: tokens },
    })
  })
}

/** Float32, little-endian. */
function base64(vector: Float32Array): string {
  return Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('base64')
}
