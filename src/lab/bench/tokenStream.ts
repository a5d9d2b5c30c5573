// Token ids to feed a model that has no text of its own: random, but staying on one of a synthetic model's topics for a
// while, as text does. The same for the same seed. Pure.
import { TOPICS } from '../synthetic/syntheticWeights.js'

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
