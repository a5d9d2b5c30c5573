// What the embedding endpoints of all APIs do: inputs in, vectors out.
import { ContextLimitError, type EmbedOptions } from '../../index.js'
import { ApiError } from './apiError.js'
import type { Served } from './middleware.js'
import type { ServerContext } from './serverContext.js'

export interface EmbeddedInputs {
  readonly vectors: readonly Float32Array[]
  readonly tokens: number
}

export async function embedInputs(
  { metrics }: Pick<ServerContext, 'metrics'>,
  { session, model }: Pick<Served, 'session' | 'model'>,
  inputs: readonly (string | readonly number[])[],
  dimensions: number | null | undefined,
  options: EmbedOptions,
): Promise<EmbeddedInputs> {
  const { hiddenSize } = model.config
  if (dimensions != null && dimensions !== hiddenSize) {
    // The first numbers of such a vector mean nothing without the others.
    const message = `dimensions: vectors of this model have ${hiddenSize} and cannot be shortened`
    throw new ApiError('invalid_request', message, { param: 'dimensions' })
  }
  try {
    const embeddings = await session.embed(inputs, options)
    const tokens = embeddings.reduce((sum, embedding) => sum + embedding.tokens, 0)
    metrics.embedded(tokens)
    return { vectors: embeddings.map(({ vector }) => vector), tokens }
  } catch (error) {
    if (!(error instanceof ContextLimitError)) throw error
    const message = `This model's maximum context length is ${error.limit} tokens. However, an input has ${error.position}.`
    throw new ApiError('invalid_request', message, { code: 'context_length_exceeded', param: 'input' })
  }
}
