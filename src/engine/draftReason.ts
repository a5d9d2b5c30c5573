// What a comparison of guesses with doing without has come to, in a few words.
import type { DraftComparison } from './draftComparison.js'

export interface Measured {
  readonly guesses: number
  readonly seconds: number // of a round without
  readonly cost: number // of one with guesses, in those without
  readonly isFirst: boolean // by the first rounds alone, which are slower than those after them
}

/** Null: both sides had guesses, or there was nothing to compare. */
export function measuredBy(comparison: DraftComparison): Measured | null {
  const { inUse, rival, hasTurns } = comparison
  if (inUse > 0 && rival > 0) return null
  if (!hasTurns) {
    const cost = inUse > 0 ? null : comparison.cost(1)
    return cost === null ? null : { guesses: 1, seconds: comparison.baseSeconds, cost, isFirst: true }
  }
  const { ratio, seconds } = comparison
  return inUse === 0
    ? { guesses: rival, seconds, cost: ratio, isFirst: false }
    : { guesses: inUse, seconds: seconds * ratio, cost: 1 / ratio, isFirst: false }
}

/** `tokens`: what a round with so many guesses gives. */
export function draftReason({ guesses, seconds, cost, isFirst }: Measured, tokens: number): string {
  const percent = Math.round((tokens / cost - 1) * 100)
  const times = `${milliseconds(seconds * cost)} for ${tokens.toFixed(2)} tokens, ${milliseconds(seconds)} for one without`
  const what = percent > 0 ? `${percent}% faster` : percent < 0 ? `${-percent}% slower` : 'as fast'
  return `${what} with ${guesses}${isFirst ? ', in its first rounds' : ''}: ${times}`
}

function milliseconds(seconds: number): string {
  return `${(seconds * 1000).toPrecision(3)} ms`
}
