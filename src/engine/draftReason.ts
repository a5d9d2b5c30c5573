// What a comparison of guesses with doing without has come to, in a few words.
import type { DraftComparison } from './trial.js'

const RECENT = 200 // tokens: what is older is said to be
const ROUNDED = 100 // tokens

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

/** `tokens`: what a round with so many guesses gives. `now`: tokens so far. */
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
