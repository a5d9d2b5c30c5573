// Recent acceptance rates of draft tokens (DraftRates), and the result of comparing drafting with
// doing without, for people (draftReason). Pure.
import { MOST_GUESSES } from '../backends/backend.js'
import type { DraftComparison } from './trial.js'

const FORGET = 0.03 // of what is known about a place, with each guess there
const PRIOR = { rate: 0.7, weight: 3 } // of guesses, before there were any

/** Acceptance by place: of the first token, of the second behind an accepted first, and so on. */
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

const RECENT = 200 // tokens: the age of older results is reported
const ROUNDED = 100 // tokens

/** The result of a comparison of drafting with doing without. */
export interface Measured {
  readonly guesses: number
  readonly seconds: number // of a round without
  readonly cost: number // of one with guesses, in those without
  readonly isFirst: boolean // by the first rounds alone, which are slower than those after them
  readonly at: number // tokens of the model before it
}

/** Null: both sides had guesses, or there was nothing to compare. `at`: tokens so far. */
export function measuredBy(comparison: DraftComparison, at: number): Measured | null {
  const { inUse, rival, hasTurns } = comparison
  if (inUse > 0 && rival > 0) return null
  if (!hasTurns) {
    const cost = inUse > 0 ? null : comparison.cost(1)
    return cost === null ? null : { guesses: 1, seconds: comparison.baseSeconds, cost, isFirst: true, at }
  }
  const { ratio, seconds } = comparison
  return inUse === 0
    ? { guesses: rival, seconds, cost: ratio, isFirst: false, at }
    : { guesses: inUse, seconds: seconds * ratio, cost: 1 / ratio, isFirst: false, at }
}

/**
 * A result in a few words. `tokens`: what a round with so many guesses gives. `now`: tokens so far.
 */
export function draftReason({ guesses, seconds, cost, isFirst, at }: Measured, tokens: number, now: number): string {
  const percent = Math.round((tokens / cost - 1) * 100)
  const times = `${milliseconds(seconds * cost)} for ${tokens.toFixed(2)} tokens, ${milliseconds(seconds)} for one without`
  const what = percent > 0 ? `${percent}% faster` : percent < 0 ? `${-percent}% slower` : 'as fast'
  return `${what} with ${guesses}${isFirst ? ', in its first rounds' : ''}: ${times}${ageOf(now - at)}`
}

function ageOf(tokens: number): string {
  if (tokens < RECENT) return ''
  return `, ${(ROUNDED * Math.round(tokens / ROUNDED)).toLocaleString('en')} tokens ago`
}

function milliseconds(seconds: number): string {
  return `${(seconds * 1000).toPrecision(3)} ms`
}
