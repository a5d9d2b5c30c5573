// Texts as vectors: the mean of the model's last hidden states over a text's tokens, scaled to length 1. A model that was
// trained to write text gives these as a by-product: near texts have near vectors, but nobody trained it to rank them.
import { ContextLimitError, OptionError } from '../base/errors.js'
import type { EngineModel } from '../engine/model.js'
import { wellFormed } from '../text/template/messages.js'
import type { TextWorkers } from '../text/workers/textWorkers.js'

export interface EmbedOptions {
  /** Cut what is longer than the context, where it would be an error. Default false. */
  readonly truncate?: boolean
  readonly signal?: AbortSignal
}

export interface Embedding {
  readonly vector: Float32Array // [hidden], of length 1
  readonly tokens: number
}

/** Characters of a text that are looked at per token that fits, where the rest is cut off: tokens have fewer. */
const LONGEST_TOKENS = 16

/** Ids of a text, in which nothing counts as a control token, or the ids themselves. */
export async function embeddedIds(
  input: string | readonly number[],
  workers: TextWorkers | null,
  contextLength: number,
  { truncate = false, signal }: EmbedOptions,
): Promise<readonly number[]> {
  const ids = await idsOf(input, workers, contextLength, truncate, signal)
  if (ids.length === 0) throw new OptionError('input', 'no tokens', 'at least one token')
  return ids
}

async function idsOf(
  input: string | readonly number[],
  workers: TextWorkers | null,
  limit: number,
  truncate: boolean,
  signal: AbortSignal | undefined,
): Promise<readonly number[]> {
  if (typeof input !== 'string') {
    if (input.length > limit && !truncate) throw new ContextLimitError(input.length, limit)
    return input.slice(0, limit)
  }
  const text = wellFormed(input)
  const plain = { allowSpecial: false }
  const { ids, past } = await (workers as TextWorkers).encode(text, plain, limit, signal)
  if (past === null) return Array.from(ids)
  if (!truncate) throw new ContextLimitError(past.tokens, limit)
  const start = wellFormed(text.slice(0, limit * LONGEST_TOKENS))
  const whole = await (workers as TextWorkers).encode(start, plain, Number.POSITIVE_INFINITY, signal)
  return Array.from(whole.ids.subarray(0, limit))
}

/** The vector of some tokens, which are evaluated in a sequence of their own. */
export async function embedTokens(
  model: EngineModel,
  ids: readonly number[],
  signal: AbortSignal | undefined,
): Promise<Float32Array> {
  const { hiddenSize } = model.config
  const sum = new Float64Array(hiddenSize)
  const context = model.createContext({ maxCheckpoints: 0 })
  try {
    const onHidden = (_: number, rows: Float32Array) => {
      for (let i = 0; i < rows.length; i++) sum[i % hiddenSize] += rows[i]
    }
    await context.evaluate(ids, { logits: 'none', onHidden, signal })
  } finally {
    await context.close()
  }
  const length = Math.hypot(...sum)
  return Float32Array.from(sum, value => value / (length || 1))
}
