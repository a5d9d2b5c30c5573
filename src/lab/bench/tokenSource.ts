// What a benchmark feeds a model: a synthetic model gets its stream of ids, a real one gets text and its own samples,
// because random ids would route like nothing that people run.
import type { EngineModel } from '../../engine/model.js'
import { Sampler } from '../../text/sampling/sampler.js'
import { loadTokenizer } from '../../text/tokenizer/tokenizer.js'
import { TOPICS } from '../synthetic/syntheticWeights.js'

export interface TokenSource {
  prompt(run: number, count: number): number[]
  /** The token to evaluate next; null: whatever the model finds best, without moving logits to the host. */
  next: ((run: number, logits: Float32Array) => number) | null
}

const text = `The harbour was quiet when the ferry came in. Two fishermen sat on the wall, mending a net and arguing
about the weather, as they had done every morning for thirty years. "It will rain by noon," said the older one. The other
shook his head and pointed at the gulls. A girl with a red scarf ran down the steps, counting them aloud, and stopped at the
last one to look at the water. Nobody knew yet that the letter in her pocket would change the whole town. `

export async function tokenSourceFor(
  model: EngineModel,
  options: { greedy: boolean; seed: number },
): Promise<TokenSource> {
  const tokenizer = await loadTokenizer(model.folder, model.vocabSize)
  const streams = new Map<number, TokenStream>()
  const streamOf = (run: number) => {
    const stream = streams.get(run) ?? new TokenStream(model.vocabSize, options.seed * 1000 + run)
    streams.set(run, stream)
    return stream
  }
  if (!tokenizer) {
    return {
      prompt: (run, count) => streamOf(run).take(count),
      next: options.greedy ? null : run => streamOf(run).next(),
    }
  }
  const passage = tokenizer.encode(text)
  const sampler = new Sampler({ temperature: 1, seed: options.seed })
  return {
    // Each run begins elsewhere in the passage.
    prompt: (run, count) => Array.from({ length: count }, (_, i) => passage[(i + (run + 1) * 17) % passage.length]),
    next: options.greedy ? null : (_run, logits) => sampler.sample(logits),
  }
}

/**
 * Token ids to feed a model that has no text of its own: random, but staying on one of a synthetic model's topics for a
 * while, as text does. The same for the same seed. Pure.
 */
const STAY = 31 / 32 // the chance that a token has the topic of the one before

export class TokenStream {
  private state: number
  private topic: number

  constructor(
    private readonly vocabSize: number,
    seed: number,
  ) {
    this.state = Math.imul(seed + 1, 0x9e3779b1)
    this.topic = Math.floor(this.random() * TOPICS)
  }

  next(): number {
    if (this.random() > STAY) this.topic = Math.floor(this.random() * TOPICS)
    const perTopic = Math.floor(this.vocabSize / TOPICS)
    if (perTopic === 0) return Math.floor(this.random() * this.vocabSize)
    return Math.floor(this.random() * perTopic) * TOPICS + this.topic
  }

  take(count: number): number[] {
    return Array.from({ length: count }, () => this.next())
  }

  // mulberry32
  private random(): number {
    this.state = (this.state + 0x6d2b79f5) | 0
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
