// One model as the AI SDK's `embed` sees it: texts in, vectors out.
import type { EmbeddingModelV3, EmbeddingModelV3CallOptions, EmbeddingModelV3Result } from '@ai-sdk/provider'
import type { Session } from './index.js'

export class MoefluxEmbeddingModel implements EmbeddingModelV3 {
  readonly specificationVersion = 'v3'
  readonly provider = 'moeflux'
  readonly maxEmbeddingsPerCall = Number.POSITIVE_INFINITY
  readonly supportsParallelCalls = true

  constructor(
    readonly modelId: string,
    /** Opens the model when the first call comes. */
    private readonly session: () => Promise<Session>,
  ) {}

  async doEmbed({ values, abortSignal }: EmbeddingModelV3CallOptions): Promise<EmbeddingModelV3Result> {
    const embeddings = await (await this.session()).embed(values, { signal: abortSignal })
    const tokens = embeddings.reduce((sum, embedding) => sum + embedding.tokens, 0)
    return { embeddings: embeddings.map(({ vector }) => Array.from(vector)), usage: { tokens }, warnings: [] }
  }
}
