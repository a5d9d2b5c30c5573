// How often guesses come true of late, by their place: the first, the second behind a right first, and so on.
import { MOST_GUESSES } from '../backends/backend.js'

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
    return this.tokensFrom(0, guesses)
  }

  /** The standard error of the logarithm of `tokens`: what each place may be wrong by, and what hangs on it. */
  doubt(guesses: number): number {
    let variance = 0
    let reached = 1 // how often a round comes so far
    for (let i = 0; i < guesses; i++) {
      const rate = this.rate(i)
      const weight = reached * this.tokensFrom(i + 1, guesses)
      variance += (weight ** 2 * rate * (1 - rate)) / Math.min(this.tried[i], 2 / FORGET)
      reached *= rate
    }
    return Math.sqrt(variance) / this.tokens(guesses)
  }

  /** A token, and what right guesses from this place on add to it. */
  private tokensFrom(place: number, guesses: number): number {
    return place < guesses ? 1 + this.rate(place) * this.tokensFrom(place + 1, guesses) : 1
  }

  /** Of a guess that was never made, as often as the one before it. */
  private rate(index: number): number {
    return index > 0 && this.tried[index] === PRIOR.weight ? this.rate(index - 1) : this.rates[index]
  }
}
