// How many tokens to guess ahead of each step: what pays, by how long rounds take with 0 to 3 guesses and how often guesses
// come true. A round is drafting and the step that checks. The number in use is compared with a rival in turns of a few rounds, so that
// both meet the same machine, caches and text, and until the difference is larger than what times vary by. Where nothing is guessed, a
// budget says when another trial may be made (draftBudget.ts): however bad guesses are, hardly anything is lost. Where nothing will be
// guessed for a while, the head need not be kept up to date. Pure: knows no clock, no model.
import { MOST_GUESSES } from '../compute/backend.js'
import { middleOf } from '../experts/middleOf.js'
import { DraftBudget, HEAD_COST } from './draftBudget.js'
import { DraftComparison } from './draftComparison.js'
import { DraftRates } from './draftRates.js'

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

/** What a comparison with doing without has come to. */
interface Measured {
  readonly guesses: number
  readonly seconds: number // of a round without
  readonly cost: number // of one with guesses, in those without
}

const WARM_UP = 8 // rounds before the first comparison
const FIRST_PAUSE = 64 // rounds from one to the next
const AFTER_CHANGE = 24 // the same when the last one changed the number
const AFTER_GAIN = 2 // the same when more guesses turned out better: still more may be
const LONGEST_PAUSE = { without: 8192, guessing: 512 } // who guesses has something to lose
const HOPE = 0.85 // of the speed without, for which more guesses are tried before the pause
const MARGIN = 1.03 // another number must be so much better to take over
const FELL = 0.98 // of the speed without: guesses that come true less often than they did
const SLOWER = 1.3 // rounds that take so much longer than they did are compared again
const WATCHED = 9 // rounds
const SIGHT = 32 // tokens that the head must have seen to guess nearly as well as if it had seen all

export class DraftGovernor {
  private readonly rates = new DraftRates()
  private readonly budget = new DraftBudget()
  private readonly totals = { guesses: 0, accepted: 0, rounds: 0 }
  private readonly costs = new Float64Array(MOST_GUESSES + 1).fill(1) // of a round, in rounds without guesses, as measured last
  private best = 0
  private comparison: DraftComparison | null = null
  private trialTokens = 0 // made in the rival's rounds of this comparison
  private sight = SIGHT // tokens that the head has seen, 0: it is not kept up to date
  private told: Measured | null = null
  private rivals: number[] = [1] // to come, before the next long pause
  private checks = 0
  private recent: number[] = [] // seconds of the last rounds with the number in use
  private expected = Number.POSITIVE_INFINITY // their middle when it was compared
  private pause = FIRST_PAUSE
  private left = WARM_UP // rounds to the next comparison

  constructor(
    readonly choice: Drafts,
    private readonly most: number = MOST_GUESSES, // that there is memory for
  ) {}

  /** Guesses for the next round, which can have so many at most. */
  next(most: number): number {
    if (this.choice !== 'auto') return Math.min(this.choice, most)
    const wanted = this.comparison?.count ?? this.best
    return wanted <= most ? wanted : Math.min(this.best, most)
  }

  /** Whether steps should keep the head for drafts up to date: where guesses are made, or will be soon. */
  get needsHead(): boolean {
    return this.choice === 'auto' ? this.sight > 0 : this.choice > 0
  }

  roundDone({ guesses, right, seconds }: DraftRound): void {
    const { totals } = this
    totals.guesses += guesses
    totals.accepted += right
    if (guesses > 0) totals.rounds++
    this.rates.roundDone(guesses, right)
    if (this.choice !== 'auto') return
    this.budget.tokensMade(right + 1)
    if (this.best === 0 && this.sight > 0) this.budget.headKept()
    if (this.comparison === null) this.hold(guesses, seconds)
    else this.compare(this.comparison, guesses, right, seconds)
    this.look()
  }

  get stats(): DraftStats {
    const now = this.choice === 'auto' ? this.best : this.choice
    return { ...this.totals, now, reason: this.reason() }
  }

  /** Wakes the head in time for the next trial, where that can be afforded; else it sleeps. */
  private look(): void {
    const { comparison, sight } = this
    const rounds = comparison === null ? this.left : comparison.roundsToRival
    const waking = sight > 0 ? 0 : SIGHT * HEAD_COST
    this.sight = this.best > 0 || (rounds <= SIGHT && this.canTry(waking)) ? sight + 1 : 0
  }

  /** Whether the budget allows another round of the rival, and `more`. */
  private canTry(more: number): boolean {
    const { comparison } = this
    const rival = comparison?.rival ?? this.rivals[0] ?? 1
    return this.budget.affords(rival, more + (comparison === null ? 0 : this.openLoss(comparison)))
  }

  private hold(guesses: number, seconds: number): void {
    const { best, recent } = this
    // Guesses that come true less often than they did pay less, though rounds take as long as before.
    if (best > 0 && this.gain(best) < FELL) this.become(0)
    else if (best > 0 && guesses === best) {
      recent.push(seconds)
      if (recent.length > WATCHED) recent.shift()
      if (recent.length === WATCHED && middleOf(recent) > SLOWER * this.expected) this.left = 0
    }
    if (--this.left > 0) return
    this.comparison = new DraftComparison(this.best, this.nextRival())
    this.trialTokens = 0
    this.budget.trialBegins()
  }

  private compare(comparison: DraftComparison, guesses: number, right: number, seconds: number): void {
    if (guesses !== comparison.count) return // there was no room for as many, or another answer's round is late
    const isRivals = comparison.count === comparison.rival
    let hasTurnEnded = comparison.add(seconds)
    if (isRivals) {
      this.trialTokens += right + 1
      const { inUse, rival, cost } = comparison
      if (cost !== null) this.budget.roundLoses(rival, cost * this.costs[inUse] - this.rates.tokens(rival))
    }
    if (!hasTurnEnded && comparison.roundsToRival === 0) hasTurnEnded = this.endsTurn(comparison)
    if (hasTurnEnded && comparison.isDone(...this.tokenRatio(comparison))) this.conclude(comparison)
  }

  /** Goes on with the rival where the budget allows it; else the turn ends with what there is. */
  private endsTurn(comparison: DraftComparison): boolean {
    const isReady = this.sight >= SIGHT && this.canTry(0)
    if (comparison.rival !== 0 && !isReady) return comparison.endTrial()
    comparison.beginTrial()
    return false
  }

  /** Tokens that a comparison has lost so far, beside doing without. */
  private openLoss({ inUse, rival, cost, rivalRounds }: DraftComparison): number {
    return rival === 0 || cost === null ? 0 : cost * this.costs[inUse] * rivalRounds - this.trialTokens
  }

  /** What a round of the rival gives in place of one with the number in use, and how far that is to be doubted. */
  private tokenRatio({ inUse, rival }: DraftComparison): [number, number] {
    const { rates } = this
    return [rates.tokens(rival) / rates.tokens(inUse), rates.doubt(Math.max(inUse, rival))]
  }

  private nextRival(): number {
    if (this.rivals.length > 0) return this.rivals.shift() as number
    const { best } = this
    if (best === 0) return 1
    // Every second time doing without, and the neighbours in between.
    const others = [best + 1, best - 1].filter(count => count > 0 && count <= this.most)
    const check = this.checks++
    return check % 2 === 0 || others.length === 0 ? 0 : others[(check >> 1) % others.length]
  }

  private conclude(comparison: DraftComparison): void {
    const { inUse, rival, ratio, seconds } = comparison
    this.budget.trialEnded(this.openLoss(comparison))
    this.comparison = null
    if (rival === 0) this.costs[inUse] = 1 / ratio
    else this.costs[rival] = this.costs[inUse] * ratio
    this.told = measured(comparison) ?? this.told
    this.expected = seconds
    const gain = this.gain(rival) / this.gain(inUse)
    const isSure = comparison.isClear(...this.tokenRatio(comparison))
    // Nobody can be blamed for doing without.
    if (rival === 0 ? gain > 1 : gain > MARGIN && isSure) this.become(rival)
    else this.stay(rival)
  }

  private stay(refused: number): void {
    const { best } = this
    this.recent = []
    if (best === 0 && refused < this.most && this.gain(refused) > HOPE) {
      this.rivals = [refused + 1]
      this.left = FIRST_PAUSE
      return
    }
    this.rivals = []
    this.left = this.pause
    this.pause = Math.min(best > 0 ? LONGEST_PAUSE.guessing : LONGEST_PAUSE.without, this.pause * 2)
  }

  private become(best: number): void {
    const isMore = best > this.best
    this.best = best
    this.recent = []
    this.expected = Number.POSITIVE_INFINITY
    this.pause = FIRST_PAUSE
    this.checks = 0
    this.rivals = isMore && best < this.most ? [best + 1] : []
    this.left = this.rivals.length > 0 ? AFTER_GAIN : AFTER_CHANGE
  }

  /** Tokens per second with so many guesses, over those without. */
  private gain(guesses: number): number {
    return this.rates.tokens(guesses) / this.costs[guesses]
  }

  private reason(): string {
    if (this.choice !== 'auto') return 'as asked for'
    const told = this.told ?? (this.comparison && measured(this.comparison))
    if (told === null) return 'not measured yet'
    const { guesses, seconds, cost } = told
    const tokens = this.rates.tokens(guesses)
    const percent = Math.round((tokens / cost - 1) * 100)
    const times = `${milliseconds(seconds * cost)} for ${tokens.toFixed(2)} tokens, ${milliseconds(seconds)} for one without`
    const what = percent > 0 ? `${percent}% faster` : percent < 0 ? `${-percent}% slower` : 'as fast'
    return `${what} with ${guesses}: ${times}`
  }
}

function measured(comparison: DraftComparison): Measured | null {
  const { inUse, rival, hasTurns, ratio, seconds } = comparison
  if (!hasTurns || (inUse > 0 && rival > 0)) return null
  return inUse === 0
    ? { guesses: rival, seconds, cost: ratio }
    : { guesses: inUse, seconds: seconds * ratio, cost: 1 / ratio }
}

function milliseconds(seconds: number): string {
  return `${(seconds * 1000).toPrecision(3)} ms`
}
