// Trials of numbers of draft tokens at run time: two numbers alternately (DraftComparison), the
// rounds that count (SteadyRounds), and whether code is compiled by now (Warmth). Pure: callers
// measure.
import { upperMedian } from '../base/median.js'

export const BASE_ROUNDS = 6 // of the number in use that count in a turn
const RIVAL_ROUNDS = 8 // the same of the rival
const LEAST = { toRefuse: 3, toTake: 4 } // rounds of the rival that count
const MOST_TURNS = { toRefuse: 8, toTake: 24 } // a rival that seems better costs nothing
const FEW_TURNS = 4 // where guesses are in use: others hardly differ from them, and doing without costs
const MOST_COST = 6 // rounds: what takes longer was put aside by the system
const NOT_ITS_OWN = 1.3 // times what rounds of a kind take: more is the price of changing over, or of other programs
const DISTURBED = 0.7 // more guesses take longer: where they took so much less, the others were put aside by the system
export const MARGIN = 1.03 // another number must be so much better to take over
const SURE = 2.5 // times the standard error
const LEAST_SPREAD = 0.02 // of rounds, where they seem to take the same time
const DRIFT = 0.04 // by what the machine may be slower or faster from one side of a turn to the other

interface Turn {
  readonly base: readonly number[] // seconds of rounds, each
  readonly rival: readonly number[]
}

/**
 * Compares two numbers of draft tokens: some rounds with the number in use, some with its rival,
 * turn by turn, so that what slows down both does not count. Rounds with the number in use continue
 * until a caller begins a trial; the last of them are compared. Changing over costs time, so a turn
 * is long, and ends early if the difference is clear. After rounds without draft tokens the rounds
 * that do not count have one each, but for the last: they cost least, and show whether more can
 * pay.
 */
export class DraftComparison {
  private readonly turns: Turn[] = []
  private readonly costs = new Map<number, number[]>() // of rounds that were tried, in rounds with the number in use, by guesses
  private tokens = 0 // that these gave
  private trial: SteadyRounds | null = null // the rival's in this turn

  /** Numbers of guesses: the one in use, and another. `base`: the last rounds of the one in use. */
  constructor(
    readonly inUse: number,
    public rival: number,
    private readonly base: SteadyRounds,
  ) {}

  /** What the next round should have. */
  get count(): number {
    const { trial, inUse, rival } = this
    if (trial === null) return inUse
    return inUse === 0 && trial.unsettled > 1 ? Math.min(rival, 1) : rival
  }

  get isTrial(): boolean {
    return this.trial !== null
  }

  /** Rounds with the number in use that must come before the rival's. */
  get roundsToRival(): number {
    return this.trial === null ? this.base.missing : 0
  }

  /** From here on the rival's rounds. Call when `roundsToRival` is 0. */
  beginTrial(): void {
    this.trial ??= new SteadyRounds(this.rival, RIVAL_ROUNDS)
  }

  /** A round with `count` guesses took so long and gave so many tokens. True: a turn has ended with it. */
  add(seconds: number, tokens: number): boolean {
    const { trial, count } = this
    if (trial === null) {
      this.base.add(seconds)
      return false
    }
    const cost = Math.min(MOST_COST, seconds / this.baseSeconds)
    const costs = this.costs.get(count) ?? []
    costs.push(count > this.inUse ? Math.max(1, cost) : cost)
    this.costs.set(count, costs)
    this.tokens += tokens
    trial.add(seconds)
    if (trial.missing > 0) return false
    this.endTrial()
    return true
  }

  /** Something else came in between: the next rounds say little. */
  unsettle(): void {
    this.base.unsettle()
    this.trial?.unsettle()
  }

  /** No more rounds of the rival in this turn: what there is counts. */
  endTrial(): void {
    this.turns.splice(0, this.turns.length, ...this.allTurns)
    this.trial = null
    this.base.restart()
  }

  /**
   * What rounds with so many guesses took, in rounds with the number in use, where there were `least` of them: a quarter took less. The others
   * may have been put aside, or were the first after rounds without.
   */
  cost(guesses: number, least = 1): number | null {
    const costs = this.costs.get(guesses) ?? []
    return costs.length < least ? null : [...costs].sort((a, b) => a - b)[costs.length >> 2]
  }

  /** Tokens that could have been made with the number in use, in the time of what was tried, less those that were. */
  get loss(): number {
    let spent = 0
    for (const costs of this.costs.values()) {
      const most = NOT_ITS_OWN * (costs.length < 4 ? Math.min(...costs) : upperMedian(costs))
      for (const cost of costs) spent += Math.min(most, cost)
    }
    return spent - this.tokens
  }

  /** `tokens`: what a round of the rival gives, in those of one with the number in use; with the standard error of its logarithm. */
  isDone(tokens: number, doubt: number): boolean {
    const turns = this.allTurns
    if (turns.length === 0) return false
    const isBetter = tokens > this.ratio
    const rounds = turns.reduce((sum, { rival }) => sum + rival.length, 0)
    if (rounds >= (isBetter ? LEAST.toTake : LEAST.toRefuse) && this.isClear(tokens, doubt)) return true
    const couldBe = Math.log(tokens / this.ratio) + Math.hypot(this.doubt, doubt)
    if (rounds > LEAST.toTake && couldBe < Math.log(MARGIN)) return true
    const most = isBetter ? MOST_TURNS.toTake : MOST_TURNS.toRefuse
    return this.turns.length >= (this.inUse > 0 ? FEW_TURNS : most)
  }

  /** Whether the difference is so many times larger than what turns differ by and what guesses may come to. */
  isClear(tokens: number, doubt: number, times: number = SURE): boolean {
    return Math.abs(Math.log(tokens / this.ratio)) > times * Math.hypot(this.doubt, doubt)
  }

  /** Whether there is anything to compare. */
  get hasTurns(): boolean {
    return this.allTurns.length > 0
  }

  /** How much longer a round of the rival takes. */
  get ratio(): number {
    return Math.exp(middleOrMean(logRatios(this.allTurns)))
  }

  /** Seconds of a round with the number in use. */
  get seconds(): number {
    return upperMedian(this.allTurns.map(({ base }) => upperMedian(base)))
  }

  /** The same, in this turn. */
  get baseSeconds(): number {
    return upperMedian(this.base.seconds)
  }

  /** With the turn that has not ended, where the rival had some rounds that count. */
  private get allTurns(): readonly Turn[] {
    const rival = this.trial?.seconds ?? []
    if (rival.length < LEAST.toRefuse) return this.turns
    const turn = { base: [...this.base.seconds], rival: [...rival] }
    const longer = (this.rival > this.inUse ? 1 : -1) * logRatio(turn, turn)
    return longer > Math.log(DISTURBED) ? [...this.turns, turn] : this.turns
  }

  /** The standard error of the ratio's logarithm, by what rounds of a side differ by and by what turns do. */
  private get doubt(): number {
    const turns = this.allTurns
    const offs = turns.flatMap(({ base, rival }) => [...off(base.map(Math.log)), ...off(rival.map(Math.log))])
    const spread = Math.max(LEAST_SPREAD, 1.48 * upperMedian(offs))
    const variances = turns.map(
      ({ base, rival }) => 1.6 * spread ** 2 * (1 / base.length + 1 / rival.length) + DRIFT ** 2,
    )
    const byRounds = Math.sqrt(variances.reduce((a, b) => a + b)) / turns.length
    if (turns.length < 3) return byRounds
    return Math.max(byRounds, (1.86 * upperMedian(off(logRatios(turns)))) / Math.sqrt(turns.length))
  }
}

/** Of each turn, between the rounds with the number in use before it and after it, since the machine may be on its way from slow to fast. */
function logRatios(turns: readonly Turn[]): number[] {
  return turns.map((turn, i) => logRatio(turn, turns[i + 1] ?? turn))
}

function logRatio({ base, rival }: Turn, next: Turn): number {
  return Math.log(upperMedian(rival)) - (Math.log(upperMedian(base)) + Math.log(upperMedian(next.base))) / 2
}

/** How far values are from their middle. */
function off(values: readonly number[]): number[] {
  const middle = upperMedian(values)
  return values.map(value => Math.abs(value - middle))
}

function middleOrMean(values: readonly number[]): number {
  return values.length < 3 ? values.reduce((a, b) => a + b, 0) / values.length : upperMedian(values)
}

const SETTLING = { without: 5, guessing: 3 } // rounds

/**
 * Seconds of consecutive rounds of one kind. The first ones after rounds of another kind do not
 * count: they drop what was pipelined for those, and a GPU is pipelined only after some rounds.
 */
export class SteadyRounds {
  readonly seconds: number[] = []
  private settling: number

  /** Of so many guesses each; the last `most` are kept. */
  constructor(
    private readonly guesses: number,
    private readonly most: number,
  ) {
    this.settling = this.settlingRounds
  }

  add(seconds: number): void {
    if (this.settling > 0) this.settling--
    else this.seconds.push(seconds)
    if (this.seconds.length > this.most) this.seconds.shift()
  }

  /** Rounds to come that do not count. */
  get unsettled(): number {
    return this.settling
  }

  /** Rounds to come until all are there. */
  get missing(): number {
    return this.settling + this.most - this.seconds.length
  }

  /** Something else came in between. */
  unsettle(): void {
    this.settling = this.settlingRounds
  }

  /** As new. */
  restart(): void {
    this.seconds.length = 0
    this.unsettle()
  }

  private get settlingRounds(): number {
    return this.guesses === 0 ? SETTLING.without : SETTLING.guessing
  }
}

const FALL = 0.95 // of the shortest before: still getting faster
const LONG_ROUND = 0.01 // seconds
const GIVEN_UP = 8 // times as many rounds as are enough: it will not get warmer

/**
 * Whether code that is compiled while it runs has reached its speed: rounds of one kind get no
 * shorter. Compilers work in steps, so that times stay the same for some seconds and fall again:
 * then `seconds` must have passed too, unless rounds are so long that compiling adds little.
 */
export class Warmth {
  isWarm: boolean
  private shortest = Number.POSITIVE_INFINITY // of all but the last ones
  private readonly last: number[] = [] // seconds
  private rounds = 0
  private passed = 0 // seconds

  /** Warm after `enough` rounds without a speed-up, and at least `seconds` of rounds. */
  constructor(
    private readonly enough: number,
    private readonly seconds = 0,
  ) {
    this.isWarm = enough === 0
  }

  /** Whether no round was so short that what compiling adds to it counts. */
  get areLong(): boolean {
    return Math.min(this.shortest, ...this.last) > LONG_ROUND
  }

  /** A round took so long. */
  roundDone(seconds: number): void {
    if (this.isWarm) return
    const { last } = this
    last.push(seconds)
    if (last.length > this.enough) this.shortest = Math.min(this.shortest, last.shift() as number)
    this.passed += seconds
    const isSteady = Math.min(...last) > FALL * this.shortest || ++this.rounds >= GIVEN_UP * this.enough
    this.isWarm = isSteady && (this.passed >= this.seconds || this.areLong)
  }
}
