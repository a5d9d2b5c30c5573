// Chooses guesses from the logits of a model's head, and tokens from those of the model where guesses were made, so that the text is
// distributed as without guesses. Where the choice is certain (the best token, or a seed's), a guess is what the sampler would choose
// from the head's logits, and it counts if the sampler chooses it from the model's: the text is the very same. Else it is speculative
// sampling: a guess drawn from q stays with probability min(1, p/q), and what replaces it is drawn from what p has beyond q.
import { SamplingError } from '../../base/errors.js'
import type { Candidates, Sampler } from './sampler.js'

interface Draw {
  readonly token: number
  readonly candidates: Candidates // that it was drawn from
}

export class GuessChooser {
  private readonly guesser: Sampler
  private draws: Draw[] = []
  private share = new Float64Array(0) // [vocab], zeros between calls

  constructor(private readonly sampler: Sampler) {
    this.guesser = sampler.twin()
  }

  /** Guesses go on from what the sampler chose last. */
  begin(): void {
    this.guesser.follow(this.sampler)
    this.draws = []
  }

  /** The next guess; null where the head, which may leave tokens out, has none that the mask allows. `mask` as in `Sampler.sample`. */
  guess(logits: Float32Array, mask: Uint32Array | null = null): number | null {
    try {
      return this.draw(logits, mask)
    } catch (error) {
      if (error instanceof SamplingError) return null
      throw error
    }
  }

  private draw(logits: Float32Array, mask: Uint32Array | null): number {
    if (this.sampler.isDetermined) return this.guesser.sample(logits, mask)
    const { tokens, weights } = this.guesser.weigh(logits, mask)
    const candidates = { tokens: tokens.slice(), weights: weights.slice() }
    // Not by the numbers that the sampler will draw next: a guess must not know what its check depends on.
    const token = this.sampler.draw(candidates)
    this.guesser.took(token)
    this.draws.push({ token, candidates })
    return token
  }

  /** The token that comes where guess `index` was made, or behind the last guess. */
  choose(logits: Float32Array, index: number, mask: Uint32Array | null = null): number {
    const draw = this.draws[index]
    if (draw === undefined) return this.sampler.sample(logits, mask)
    const token = this.check(this.sampler.weigh(logits, mask), draw, logits.length)
    this.sampler.took(token)
    return token
  }

  private check(model: Candidates, { token: guess, candidates: head }: Draw, vocabSize: number): number {
    if (this.share.length !== vocabSize) this.share = new Float64Array(vocabSize)
    const { share } = this
    const [modelTotal, headTotal] = [sum(model.weights), sum(head.weights)]
    head.tokens.forEach((token, i) => {
      share[token] = head.weights[i] / headTotal
    })
    const at = model.tokens.indexOf(guess)
    const likelihood = at < 0 ? 0 : model.weights[at] / modelTotal
    const stays = this.sampler.chance() * share[guess] < likelihood
    const rest = model.weights.map((weight, i) => Math.max(0, weight / modelTotal - share[model.tokens[i]]))
    for (const token of head.tokens) share[token] = 0
    if (stays) return guess
    // Rounding may leave nothing where both are the same.
    return this.sampler.draw(sum(rest) > 0 ? { tokens: model.tokens, weights: rest } : model)
  }
}

function sum(values: Float64Array): number {
  let total = 0
  for (const value of values) total += value
  return total
}
