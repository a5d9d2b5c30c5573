// What is to be expected of each number of guesses, by how often guesses come true and by what rounds take, as far as these are known.
import { DraftCosts } from './draftCosts.js'
import { DraftRates } from './drafts.js'

const UNKNOWN_LOSS = 0.2 // tokens, of a round with guesses that was never measured
const HOPELESS = 0.8 // of the speed without, by the first rounds with one guess and what more could come to at best

export class DraftOutlook {
  readonly rates = new DraftRates()
  readonly costs = new DraftCosts()

  /** So many guesses there may be. */
  constructor(private readonly most: number) {}

  /** Tokens per second with so many guesses, over those without. */
  gain(guesses: number): number {
    return this.rates.tokens(guesses) / this.costs.of(guesses)
  }

  /** Tokens that a round with so many guesses loses, beside doing without. */
  lossOf(guesses: number): number {
    const loss = this.costs.of(guesses) - this.rates.tokens(guesses)
    return Math.max(this.costs.isMeasured(guesses) ? 0 : UNKNOWN_LOSS, loss)
  }

  /** The number of guesses that should pay best, but for the one in use. */
  promising(inUse: number): number {
    let best = inUse === 1 ? 2 : 1
    for (let guesses = best + 1; guesses <= this.most; guesses++) {
      if (guesses !== inUse && this.gain(guesses) > this.gain(best)) best = guesses
    }
    return Math.min(best, this.most)
  }

  /** Whether so many guesses would pay, if they came true somewhat more often than so far. */
  mayPay(guesses: number): boolean {
    return this.hopedFor(guesses) > this.costs.of(guesses)
  }

  /** Whether no number of guesses can pay where a round with one takes so long, in rounds without. */
  isHopeless(cost: number): boolean {
    const costs = new DraftCosts()
    costs.set(1, cost)
    for (let guesses = 1; guesses <= this.most; guesses++) {
      if (this.hopedFor(guesses) > HOPELESS * costs.of(guesses)) return false
    }
    return true
  }

  /** Tokens of a round, if guesses had bad luck so far. */
  private hopedFor(guesses: number): number {
    return this.rates.tokens(guesses) * (1 + this.rates.doubt(guesses))
  }
}
