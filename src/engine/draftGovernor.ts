// How many tokens to guess ahead of each step: what pays, by how long rounds take with 0 to 3 guesses and how often guesses
// come true. A round is drafting and the step that checks. The number in use is compared with a rival in turns of some rounds, so that
// both meet the same machine, caches and text, and until the difference is larger than what times vary by. The first rival is the largest
// number: its rounds say how often fewer guesses would come true, too. Where nothing is guessed, a budget says when another trial may be
// made (draftBudget.ts): however bad guesses are, hardly anything is lost. Where nothing will be guessed for a while, the head need not be
// kept up to date. Pure: knows no clock, no model.
import { MOST_GUESSES } from '../backends/backend.js'
import { upperMedian } from '../base/median.js'
import { DraftBudget, HEAD_COST } from './draftBudget.js'
import { DraftOutlook } from './draftOutlook.js'
import { draftReason, type Measured, measuredBy } from './drafts.js'
import { BASE_ROUNDS, DraftComparison, MARGIN, SteadyRounds, Warmth } from './trial.js'

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

const PAUSE = 64 // rounds from one comparison to the next
const AFTER_GAIN = 4 // the same when another number may be better still
const LONGEST_PAUSE = { without: 8192, guessing: 1024, even: 128 } // who guesses has something to lose
const EVEN = 1.1 // times the speed without: less may be noise, and costs hardly anything to compare again
const TRIAL = 4 // rounds of a rival that are worth changing over
const FELL = 0.98 // of the speed without: guesses that come true less often than they did
const CHANGED = 1.3 // rounds that take so much longer or shorter than they did are compared again
const WATCH = 32 // rounds after which this is looked at
const WATCH_GUESSES = 8 // the same, where by what rounds take now guesses would not pay: they may have been taken up by mistake
const SIGHT = 32 // tokens that the head must have seen to guess nearly as well as if it had seen all
const STEADY = 6 // rounds without guesses that get no faster: they have come to their speed
const COMPILED = { without: 16, guessing: 5, seconds: 2 } // the same of code that is compiled while it runs

/** What is to be known of where rounds run. */
export interface DraftMachine {
  /** Code is compiled while it runs. Default false. */
  readonly isCompiled?: boolean
  /** Whether rounds run otherwise than usual now, because the backend tries something: they say nothing. */
  readonly isUnsteady?: () => boolean
}

export class DraftGovernor {
  private readonly outlook: DraftOutlook
  private readonly budget = new DraftBudget()
  private readonly warmths: readonly Warmth[]
  private readonly totals = { guesses: 0, accepted: 0, rounds: 0 }
  private made = 0 // tokens
  private best = 0
  private recent = new SteadyRounds(0, BASE_ROUNDS) // with the number in use
  private comparison: DraftComparison | null = null
  private sight = SIGHT // tokens that the head has seen, 0: it is not kept up to date
  private told: Measured | null = null
  private rivals: number[] // to come, before the next long pause
  private checks = 0
  private expected = Number.NaN // seconds of a round with the number in use when it was compared
  private pause = PAUSE
  private left = 0 // rounds to the next comparison

  /** `most`: that there is memory for. */
  constructor(
    readonly choice: Drafts,
    private readonly most: number = MOST_GUESSES,
    private readonly machine: DraftMachine = {},
  ) {
    this.outlook = new DraftOutlook(most)
    this.rivals = [most]
    const { isCompiled = false } = machine
    const without = isCompiled ? new Warmth(COMPILED.without, COMPILED.seconds) : new Warmth(STEADY)
    const guessing = Array.from({ length: MOST_GUESSES }, () => new Warmth(isCompiled ? COMPILED.guessing : 0))
    this.warmths = [without, ...guessing]
  }

  /** Guesses for the next round, which can have so many at most. */
  next(most: number): number {
    if (this.choice !== 'auto') return Math.min(this.choice, most)
    const wanted = this.machine.isUnsteady?.() ? this.best : this.wanted
    return wanted <= most ? wanted : Math.min(this.best, most)
  }

  /** Whether steps should keep the head for drafts up to date: where guesses are made, or will be soon. */
  get needsHead(): boolean {
    return this.choice === 'auto' ? this.sight > 0 : this.choice > 0
  }

  /** The next round is the first after a prompt. */
  answerBegins(): void {
    this.unsettle()
  }

  roundDone({ guesses, right, seconds }: DraftRound): void {
    const { totals } = this
    totals.guesses += guesses
    totals.accepted += right
    if (guesses > 0) totals.rounds++
    this.outlook.rates.roundDone(guesses, right)
    if (this.choice !== 'auto') return
    this.made += right + 1
    this.budget.roundDone(right + 1, seconds)
    if (this.best === 0 && this.sight > 0) this.budget.headKept()
    if (this.machine.isUnsteady?.()) this.unsettle()
    // Else there was no room for as many, or another answer's round is late.
    else if (guesses === this.wanted) {
      const wasCold = this.isCold(guesses)
      this.warmths[guesses].roundDone(seconds)
      if (this.comparison === null) this.hold(seconds)
      else this.compare(this.comparison, seconds, right + 1, wasCold)
    }
    this.look()
  }

  get stats(): DraftStats {
    const now = this.choice === 'auto' ? this.best : this.choice
    return { ...this.totals, now, reason: this.reason() }
  }

  private get wanted(): number {
    return this.comparison?.count ?? this.best
  }

  /** Something came in between: the next rounds say little. */
  private unsettle(): void {
    this.recent.unsettle()
    this.comparison?.unsettle()
  }

  /**
   * Whether rounds with so many guesses may be slow because their code is new, or the head's experts are not in memory yet, which
   * takes longer where rounds do, too.
   */
  private isCold(guesses: number): boolean {
    const isShort = guesses > 0 || !this.warmths[0].areLong
    return this.machine.isCompiled === true && !this.warmths[guesses].isWarm && isShort
  }

  /** Wakes the head in time for the next trial, where that can be afforded; else it sleeps. */
  private look(): void {
    const { comparison, sight } = this
    const rounds = comparison === null ? this.left : comparison.roundsToRival
    const waking = sight > 0 ? 0 : SIGHT * HEAD_COST
    this.sight = this.best > 0 || (rounds <= SIGHT && this.canTry(waking)) ? sight + 1 : 0
    if (this.sight === 0 && comparison?.isTrial) comparison.endTrial()
  }

  /** Whether the budget allows a trial, or another round of the one that goes on, and `more`. */
  private canTry(more: number): boolean {
    const { comparison, outlook, budget } = this
    const isUnderWay = comparison?.isTrial === true
    if (this.isCold(0)) return false
    if (this.isCold(isUnderWay ? comparison.count : 1) && !budget.affordsCold(isUnderWay)) return false
    const rival = comparison?.rival ?? this.rivals[0] ?? outlook.promising(this.best)
    const others = (comparison?.loss ?? 0) + more
    if (isUnderWay) return budget.affords(outlook.lossOf(comparison.count) + others, outlook.mayPay(rival))
    return budget.affordsTrial(2 * outlook.lossOf(1) + TRIAL * outlook.lossOf(rival), others)
  }

  private hold(seconds: number): void {
    const { best, recent } = this
    recent.add(seconds)
    this.left--
    // Guesses that come true less often than they did pay less, though rounds take as long as before.
    if (best > 0 && this.outlook.gain(best) < FELL) {
      this.become(0)
      return
    }
    if (recent.missing > 0 || !this.warmths[best].isWarm) return
    const hasChanged = this.left > 0 && this.hasChanged(upperMedian(recent.seconds))
    if ((this.left > 0 && !hasChanged) || (best === 0 && (this.sight < SIGHT || !this.canTry(0)))) return
    if (hasChanged) this.rivals = [best > 0 ? 0 : this.most]
    this.comparison = new DraftComparison(best, this.nextRival(), recent)
    this.budget.trialBegins()
    this.comparison.beginTrial()
  }

  /** Whether rounds take longer or shorter than when they were compared; looks now and then. */
  private hasChanged(seconds: number): boolean {
    const { best, left, expected } = this
    if (best > 0 && left % WATCH_GUESSES === 0 && this.outlook.gain(best) * expected < seconds) return true
    return left % WATCH === 0 && (seconds > CHANGED * expected || expected > CHANGED * seconds)
  }

  private compare(comparison: DraftComparison, seconds: number, tokens: number, wasCold: boolean): void {
    const { inUse, isTrial, count, baseSeconds } = comparison
    if (isTrial && inUse === 0 && wasCold) this.budget.coldRound(seconds - tokens * baseSeconds)
    else comparison.add(seconds, tokens)
    if (isTrial && inUse === 0) this.glance(comparison, count)
    if (isTrial && (comparison.isDone(...this.tokenRatio(comparison)) || this.isOutdone(comparison)))
      this.conclude(comparison)
    else if (comparison.roundsToRival === 0) this.goOn(comparison)
  }

  /** What rounds of a trial say before it is over. */
  private glance(comparison: DraftComparison, guesses: number): void {
    const cost = comparison.cost(guesses, 2)
    if (cost !== null) this.outlook.costs.glance(guesses, cost)
  }

  /** Goes on with the rival where the budget allows it and there is hope; else the turn ends with what there is. */
  private goOn(comparison: DraftComparison): void {
    const { inUse, isTrial, hasTurns } = comparison
    const firstCost = inUse === 0 && !hasTurns ? comparison.cost(1, 2) : null
    const isHopeless = firstCost !== null && this.outlook.isHopeless(firstCost)
    const canGoOn = inUse > 0 || (this.sight >= SIGHT && this.canTry(0))
    if (canGoOn && !isHopeless) comparison.beginTrial()
    else if (isTrial) this.cut(comparison)
  }

  /** What was tried so far is all that can be afforded. It is gone on with later, if this rival is still the best. */
  private cut(comparison: DraftComparison): void {
    const { best, outlook } = this
    const promising = outlook.promising(best)
    if (promising === comparison.rival && outlook.gain(promising) > 1) comparison.endTrial()
    else this.conclude(comparison)
  }

  /** Whether the rounds of a turn that has ended show that another rival is better. */
  private isOutdone({ inUse, rival, isTrial, hasTurns, ratio }: DraftComparison): boolean {
    if (inUse > 0 || isTrial || !hasTurns) return false
    const other = this.outlook.promising(this.best)
    return other !== rival && this.outlook.gain(other) > (MARGIN * this.outlook.rates.tokens(rival)) / ratio
  }

  /** What a round of the rival gives in place of one with the number in use, and how far that is to be doubted. */
  private tokenRatio({ inUse, rival }: DraftComparison): [number, number] {
    const { rates } = this.outlook
    return [rates.tokens(rival) / rates.tokens(inUse), rates.doubt(Math.max(inUse, rival))]
  }

  private nextRival(): number {
    const next = this.rivals.shift()
    if (next !== undefined) return next
    const { best, most } = this
    const check = this.checks++
    // The largest number says most, the most promising one costs least.
    if (best === 0) return check % 2 === 0 ? most : this.outlook.promising(this.best)
    const others = [best + 1, best - 1].filter(count => count > 0 && count <= most)
    return check % 2 === 0 || others.length === 0 ? 0 : others[(check >> 1) % others.length]
  }

  private conclude(comparison: DraftComparison): void {
    const { inUse, rival, hasTurns } = comparison
    this.told = measuredBy(comparison, this.made) ?? this.told
    if (inUse === 0) this.budget.trialEnded(comparison.loss)
    this.comparison = null
    let isTaken = false
    if (hasTurns) {
      const { ratio } = comparison
      if (rival === 0) this.outlook.costs.set(inUse, 1 / ratio)
      else this.outlook.costs.set(rival, this.outlook.costs.of(inUse) * ratio)
      const gain = this.outlook.gain(rival) / this.outlook.gain(inUse)
      // Nobody can be blamed for doing without.
      isTaken = rival === 0 ? gain > 1 : gain > MARGIN && comparison.isClear(...this.tokenRatio(comparison), 1)
      this.expected = comparison.seconds * (isTaken ? ratio : 1)
    }
    if (comparison.isTrial) comparison.endTrial()
    if (!isTaken) this.stay()
    else this.become(rival)
  }

  private stay(): void {
    if (this.planRival()) {
      this.left = AFTER_GAIN
      return
    }
    this.left = this.pause
    this.pause = Math.min(this.longestPause, 2 * this.pause)
  }

  private get longestPause(): number {
    const { best, outlook } = this
    if (best === 0) return LONGEST_PAUSE.without
    return outlook.gain(best) < EVEN ? LONGEST_PAUSE.even : LONGEST_PAUSE.guessing
  }

  private become(best: number): void {
    this.best = best
    this.recent = new SteadyRounds(best, BASE_ROUNDS)
    this.pause = PAUSE
    this.checks = 0
    this.rivals = []
    this.left = best > 0 && this.planRival() ? AFTER_GAIN : PAUSE
  }

  /** Whether a number that was never measured seems better than the one in use: it will be tried next. */
  private planRival(): boolean {
    const { best, outlook } = this
    const rival = outlook.promising(best)
    const isBetter = outlook.gain(rival) > (best > 0 ? MARGIN : 1) * outlook.gain(best)
    this.rivals = isBetter && !outlook.costs.isMeasured(rival) ? [rival] : []
    return this.rivals.length > 0
  }

  private reason(): string {
    if (this.choice !== 'auto') return 'as asked for'
    const { made } = this
    const told = this.told ?? (this.comparison?.hasTurns ? measuredBy(this.comparison, made) : null)
    return told === null ? this.untold() : draftReason(told, this.outlook.rates.tokens(told.guesses), made)
  }

  /** Why there is nothing to tell of. */
  private untold(): string {
    if (this.comparison?.isTrial === true) return 'being tried'
    if (this.totals.rounds > 0) return 'tried too little to tell yet'
    return this.made > 0 && this.isCold(0) ? 'not tried yet: code is still being compiled' : 'not tried yet'
  }
}
