// How often guesses come true of late, by their place: the first, the second behind a right first, and so on.
import { MOST_GUESSES } from '../compute/backend.js'

const FORGET = 0.03 // of what is known about a place, with each guess there
const PRIOR = { rate: 0.7, weight: 3 } // of guesses, before there were any

export class DraftRates {
  private readonly rates = new Float64Array(MOST_GUESSES).fill(PRIOR.rate) // guess i is right when those before it are
  private readonly tried = new Float64Array(MOST_GUESSES).fill(PRIOR.weight)

  /** Of so many guesses so many were right, from the first on. */
  roundDone(guesses: number, right: number): void {
    for (let i = 0; i < guesses && i <= right; i++) {
      const before = this.rate(i)
      const weight = Math.max(FORGET, 1 / ++this.tried[i])
      this.rates[i] = before + weight * ((i < right ? 1 : 0) - before)
    }
  }

  /** Tokens that a round with so many guesses gives. */
  tokens(guesses: number): number {
    let tokens = 1
    let all = 1
    for (let i = 0; i < guesses; i++) {
      all *= this.rate(i)
      tokens += all
    }
    return tokens
  }

  /** The standard error of the logarithm of `tokens`, as if each place had told nothing of the others. */
  doubt(guesses: number): number {
    let variance = 0
    for (let i = 0; i < guesses; i++) {
      const rate = this.rate(i)
      variance += (rate * (1 - rate)) / Math.min(this.tried[i], 2 / FORGET)
    }
    return Math.sqrt(variance) / this.tokens(guesses)
  }

  /** Of a guess that was never made, as often as the one before it. */
  private rate(index: number): number {
    return index > 0 && this.tried[index] === PRIOR.weight ? this.rate(index - 1) : this.rates[index]
  }
}
