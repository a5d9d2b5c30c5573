// How many tokens to guess ahead of each step: what pays, by how long rounds take with 0 to 3 guesses and how often guesses
// come true. A round is drafting and the step that checks. Numbers of guesses are compared in turns of a few rounds, so that all of
// them meet the same machine, caches and text, and until the difference is larger than what times vary by; doing without is always
// one of them. Between comparisons the best goes on, longer each time nothing changes. Pure: knows no clock, no model.
import { MOST_GUESSES } from '../compute/backend.js'
import { DraftComparison } from './draftComparison.js'

export type Drafts = 'auto' | 0 | 1 | 2 | 3

export interface DraftRound {
  readonly guesses: number
  readonly right: number // of them, from the first on
  readonly seconds: number
}

/** Counters of a model, for `model.stats()`. */
export interface DraftStats {
  readonly guesses: number
  readonly accepted: number
  readonly rounds: number // with guesses
  readonly now: number // guesses per round that pay best
  readonly reason: string // in a few words
}

const WARM_UP = 12 // rounds before the first comparison
const FIRST_PAUSE = 64 // rounds from one to the next
const AFTER_CHANGE = 24 // the same when the last one changed the number
const AFTER_GAIN = 2 // the same when more guesses turned out better: still more may be
const LONGEST_PAUSE = 8192
const MARGIN = 1.03 // another number must be so much better to take over
const FORGET = 0.03 // of what is known about a position, with each guess there
const PRIOR = { rate: 0.7, weight: 3 } // of guesses, before there were any

export class DraftGovernor {
  private readonly rates = new Float64Array(MOST_GUESSES).fill(PRIOR.rate) // guess i is right when those before it are
  private readonly tried = new Float64Array(MOST_GUESSES).fill(PRIOR.weight)
  private readonly totals = { guesses: 0, accepted: 0, rounds: 0 }
  private best = 0
  private comparison: DraftComparison | null = null
  private measured: DraftComparison | null = null // the last one that ended
  private comparisons = 0
  private climbs = false // the last one took more guesses than before
  private pause = FIRST_PAUSE
  private left = WARM_UP // rounds to the next comparison

  constructor(readonly choice: Drafts) {}

  /** Guesses for the next round, which can have so many at most. */
  next(most: number): number {
    if (this.choice !== 'auto') return Math.min(this.choice, most)
    const wanted = this.comparison?.count ?? this.best
    return wanted <= most ? wanted : Math.min(this.best, most)
  }

  roundDone({ guesses, right, seconds }: DraftRound): void {
    const { totals } = this
    totals.guesses += guesses
    totals.accepted += right
    if (guesses > 0) totals.rounds++
    for (let i = 0; i < guesses && i <= right; i++) this.guessDone(i, i < right)
    if (this.choice === 'auto') this.decide(guesses, seconds)
  }

  get stats(): DraftStats {
    const now = this.choice === 'auto' ? this.best : this.choice
    return { ...this.totals, now, reason: this.reason() }
  }

  private guessDone(index: number, isRight: boolean): void {
    const before = this.rate(index)
    const weight = Math.max(FORGET, 1 / ++this.tried[index])
    this.rates[index] = before + weight * ((isRight ? 1 : 0) - before)
  }

  private decide(guesses: number, seconds: number): void {
    const { comparison, measured } = this
    if (comparison !== null) {
      if (guesses !== comparison.count) return // there was no room for as many
      comparison.add(seconds)
      if (comparison.isDone(count => this.tokens(count))) this.conclude(comparison)
      return
    }
    // Guesses that come true less often than they did pay less, though rounds take as long as before.
    if (this.best > 0 && measured !== null && this.gain(measured, this.best, 0) < 1) {
      this.climbs = false
      this.become(0)
    }
    if (--this.left <= 0) this.comparison = new DraftComparison(this.rivals())
  }

  /** Doing without, the present number, and one of its neighbours in turn. */
  private rivals(): number[] {
    const { best } = this
    if (best === 0) return [0, 1]
    const neighbours = [best + 1, best - 1].filter(count => count > 0 && count <= MOST_GUESSES)
    return [0, best, neighbours[this.climbs ? 0 : this.comparisons % neighbours.length]]
  }

  private conclude(comparison: DraftComparison): void {
    this.comparisons++
    this.comparison = null
    this.measured = comparison
    let { best } = this
    for (const count of comparison.counts) {
      const margin = count === 0 ? 1 : MARGIN // without is what nobody can blame
      if (count !== best && this.gain(comparison, count, best) > margin) best = count
    }
    this.climbs = best > this.best && best < MOST_GUESSES
    if (best !== this.best) this.become(best)
    else {
      this.left = this.pause
      this.pause = Math.min(LONGEST_PAUSE, this.pause * 2)
    }
  }

  private become(best: number): void {
    this.best = best
    this.pause = FIRST_PAUSE
    this.left = this.climbs ? AFTER_GAIN : AFTER_CHANGE
  }

  /** Tokens per second with `count` guesses over those with `other`, as it was measured last. */
  private gain(comparison: DraftComparison, count: number, other: number): number {
    return comparison.ratio(other, count) * (this.tokens(count) / this.tokens(other))
  }

  /** Tokens that a round with so many guesses gives. */
  private tokens(count: number): number {
    let tokens = 1
    let all = 1
    for (let i = 0; i < count; i++) {
      all *= this.rate(i)
      tokens += all
    }
    return tokens
  }

  /** How often a guess is right when those before it are; of one that was never made, as often as the one before it. */
  private rate(index: number): number {
    return index > 0 && this.tried[index] === PRIOR.weight ? this.rate(index - 1) : this.rates[index]
  }

  private reason(): string {
    const { measured } = this
    if (this.choice !== 'auto') return 'as asked for'
    if (measured === null) return 'not measured yet'
    const count = this.best > 0 && measured.counts.includes(this.best) ? this.best : measured.counts[1]
    const percent = Math.round((this.gain(measured, count, 0) - 1) * 100)
    const times = `${milliseconds(measured.seconds(count))} for ${this.tokens(count).toFixed(2)} tokens, ${milliseconds(measured.seconds(0))} for one without`
    const what = percent > 0 ? `${percent}% faster` : percent < 0 ? `${-percent}% slower` : 'as fast'
    return `${what} with ${count}: ${times}`
  }
}

function milliseconds(seconds: number): string {
  return `${(seconds * 1000).toPrecision(3)} ms`
}
