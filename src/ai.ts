// moeflux as a provider of the AI SDK: `generateText({ model: moeflux('demo'), prompt })`. A model is opened by its first
// call and stays open until `close()`, so that naming it again costs nothing.
import type { EmbeddingModelV3, EmbeddingModelV3CallOptions, EmbeddingModelV3Result } from '@ai-sdk/provider'
import { MoefluxLanguageModel } from './apps/ai/languageModel.js'
import { findModel, type Model, type OpenModelOptions, openModel, type Session, type SessionOptions } from './index.js'

export type { MoefluxCallOptions } from './apps/ai/chatOptions.js'
export { MoefluxLanguageModel } from './apps/ai/languageModel.js'

export interface MoefluxProviderOptions extends OpenModelOptions {
  readonly session?: SessionOptions
}

export interface MoefluxProvider {
  /** A folder, a name of the local store ('demo' is built in), or a model that is open already. */
  (model: string | Model): MoefluxLanguageModel
  languageModel(model: string | Model): MoefluxLanguageModel
  /** The same model for `embed` and `embedMany`. */
  embeddingModel(model: string | Model): MoefluxEmbeddingModel
  /** Closes the models that this provider opened. */
  close(): Promise<void>
}

export function createMoeflux(options: MoefluxProviderOptions = {}): MoefluxProvider {
  const { session: sessionOptions, ...openOptions } = options
  const named = new Map<string, Promise<Model>>()
  const sessions = new Map<string | Model, Promise<Session>>()
  const open = (name: string): Promise<Model> => {
    const model = findModel(name).then(folder => openModel(folder, openOptions))
    named.set(name, model)
    return model
  }
  const sessionOf = (model: string | Model): Promise<Session> => {
    let session = sessions.get(model)
    if (session === undefined) {
      const opened = typeof model === 'string' ? open(model) : Promise.resolve(model)
      session = opened.then(ready => ready.createSession(sessionOptions))
      sessions.set(model, session)
      // A model that could not be opened is tried again by the next call.
      session.catch(() => sessions.delete(model))
    }
    return session
  }
  const nameOf = (model: string | Model) => (typeof model === 'string' ? model : model.name)
  const languageModel = (model: string | Model) => new MoefluxLanguageModel(nameOf(model), () => sessionOf(model))
  const embeddingModel = (model: string | Model) => new MoefluxEmbeddingModel(nameOf(model), () => sessionOf(model))
  const close = async () => {
    const ending = [...sessions].map(async ([model, session]) => {
      if (typeof model !== 'string') await (await session.catch(() => null))?.close()
    })
    await Promise.all([...ending, ...[...named.values()].map(async model => (await model.catch(() => null))?.close())])
    sessions.clear()
    named.clear()
  }
  return Object.assign(languageModel, { languageModel, embeddingModel, close })
}

/** The provider with default options. */
export const moeflux: MoefluxProvider = createMoeflux()

/** One model as the AI SDK's `embed` sees it: texts in, vectors out. */
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
