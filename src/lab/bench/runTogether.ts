// Several sequences that decode at once: each asks for its next token as soon as it has the last, as users of a server
// do, and the scheduler makes one step of those that are ready together, and one of their guesses where the model makes some. Prompts are
// evaluated before the clock starts.
import type { EngineModel } from '../../engine/model.js'
import { type DecodeStreamOptions, decodeStream } from './decodeStream.js'
import type { TokenSource } from './tokenSource.js'

/** Tokens are each sequence's. */
export interface TogetherOptions extends DecodeStreamOptions {
  readonly sequences: number
  readonly promptTokens: number
}

/** Tokens per second of all sequences together. `firstStream`: which of the source's streams the first one takes. */
export async function runTogether(
  model: EngineModel,
  source: TokenSource,
  firstStream: number,
  options: TogetherOptions,
): Promise<number> {
  const { sequences, promptTokens, decodeTokens, signal } = options
  const { drafts } = model
  const contexts = Array.from({ length: sequences }, () => model.createContext({ maxCheckpoints: 0 }))
  try {
    const starts = await Promise.all(
      contexts.map((context, i) => context.evaluate(source.prompt(firstStream + i, promptTokens), { signal })),
    )
    drafts?.answerBegins()
    const startedAt = performance.now()
    await Promise.all(
      contexts.map((context, i) => decodeStream(context, drafts, source, firstStream + i, starts[i], options)),
    )
    return (sequences * decodeTokens * 1000) / (performance.now() - startedAt)
  } finally {
    await Promise.all(contexts.map(context => context.close()))
  }
}
