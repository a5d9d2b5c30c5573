// Several sequences that decode at once: each asks for its next token as soon as it has the last, as users of a server
// do, and the scheduler makes one step of those that are ready together. Prompts are evaluated before the clock starts.
import type { Context } from '../engine/context.js'
import type { EngineModel } from '../engine/model.js'
import type { TokenSource } from './tokenSource.js'

export interface TogetherOptions {
  readonly sequences: number
  readonly promptTokens: number
  readonly decodeTokens: number // of each sequence
  readonly signal?: AbortSignal
  readonly onToken?: () => void
}

/** Tokens per second of all sequences together. `firstStream`: which of the source's streams the first one takes. */
export async function runTogether(
  model: EngineModel,
  source: TokenSource,
  firstStream: number,
  options: TogetherOptions,
): Promise<number> {
  const { sequences, promptTokens, decodeTokens, signal } = options
  const contexts = Array.from({ length: sequences }, () => model.createContext({ maxCheckpoints: 0 }))
  try {
    const starts = await Promise.all(
      contexts.map((context, i) => context.evaluate(source.prompt(firstStream + i, promptTokens), { signal })),
    )
    const decode = async (context: Context, i: number) => {
      let { logits, argmax } = starts[i]
      const into = logits === null ? undefined : new Float32Array(logits.length)
      for (let token = 0; token < decodeTokens; token++) {
        if (source.next) {
          logits = await context.evalToken(source.next(firstStream + i, logits as Float32Array), { signal, into })
        } else {
          argmax = await context.evalTokenGreedy(argmax as number, { signal })
        }
        options.onToken?.()
      }
    }
    const startedAt = performance.now()
    await Promise.all(contexts.map(decode))
    return (sequences * decodeTokens * 1000) / (performance.now() - startedAt)
  } finally {
    await Promise.all(contexts.map(context => context.close()))
  }
}
