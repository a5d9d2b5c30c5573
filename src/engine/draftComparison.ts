// Two numbers of guesses by turns: some rounds with the number in use, some with its rival, and how much longer the rival's took, turn by
// turn, so that what slows down both says nothing. Rounds with the number in use go on for as long as nobody asks for the rival; the
// last of them are what it is compared with. The first rounds of each side do not count: what was done ahead for the other side is thrown
// away in them, and a GPU decodes ahead only after a few tokens without guesses.
import { middleOf } from '../experts/middleOf.js'

const COUNTED = 2 // rounds of a side, in a turn
const SETTLING = { without: 4, guessing: 1 } // rounds before them
const LEAST_TURNS = 5
const LEAST_TO_REFUSE = 3 // a rival that is clearly worse
const MOST_TURNS = { toRefuse: 12, toTake: 48 } // a rival that seems better costs nothing
const DISTURBED = 0.7 // more guesses take longer: where they took so much less, the others were put aside by the system
const SURE = 2 // times what turns differ by

export class DraftComparison {
  /** What the rival's rounds take, in rounds with the number in use, by all there were: of few the shortest, since one may have been put aside. */
  cost: number | null = null
  private readonly turns: { readonly base: number; readonly rival: number }[] = [] // seconds of a round, each
  private readonly costs: number[] = [] // of the rival's rounds, in rounds with the number in use
  private base: number[] = [] // seconds of its rounds since the rival's last one
  private trial: number[] | null = null // seconds of the rival's in this turn

  /** Numbers of guesses: the one in use, and another. */
  constructor(
    readonly inUse: number,
    readonly rival: number,
  ) {}

  /** What the next round should have. */
  get count(): number {
    return this.trial === null ? this.inUse : this.rival
  }

  /** Rounds with the number in use that must come before the rival's. */
  get roundsToRival(): number {
    return this.trial === null ? Math.max(0, settling(this.inUse) + COUNTED - this.base.length) : 0
  }

  /** From here on the rival's rounds. Call when `roundsToRival` is 0. */
  beginTrial(): void {
    this.trial ??= []
  }

  /** A round with `count` guesses took so long. True: a turn has ended with it. */
  add(seconds: number): boolean {
    const { trial } = this
    if (trial === null) {
      this.base.push(seconds)
      if (this.base.length > settling(this.inUse) + COUNTED) this.base.shift()
      return false
    }
    trial.push(seconds)
    const cost = seconds / this.baseSeconds
    this.costs.push(this.rival > this.inUse ? Math.max(1, cost) : cost)
    this.cost = this.costs.length < 3 ? Math.min(...this.costs) : middleOf(this.costs)
    return trial.length === settling(this.rival) + COUNTED && this.endTrial()
  }

  /** No more rounds of the rival in this turn: what there is counts. False: there were none. */
  endTrial(): boolean {
    const hadRounds = this.trial !== null && this.trial.length > 0
    if (this.trial !== null && this.trial.length > 0) {
      const turn = { base: this.baseSeconds, rival: mean(this.trial.slice(-COUNTED)) }
      const [fewer, more] = this.rival > this.inUse ? [turn.base, turn.rival] : [turn.rival, turn.base]
      if (more > DISTURBED * fewer) this.turns.push(turn)
    }
    this.trial = null
    this.base = []
    return hadRounds
  }

  get rivalRounds(): number {
    return this.costs.length
  }

  /** `tokens`: what a round of the rival gives, in those of one with the number in use; with the standard error of its logarithm. */
  isDone(tokens: number, doubt: number): boolean {
    const { length } = this.turns
    if (this.trial !== null || length < LEAST_TO_REFUSE) return false
    const isBetter = tokens > this.ratio
    if (length < (isBetter ? LEAST_TURNS : LEAST_TO_REFUSE)) return false
    return length >= (isBetter ? MOST_TURNS.toTake : MOST_TURNS.toRefuse) || this.isClear(tokens, doubt)
  }

  /** Whether the difference is larger than what turns differ by and what guesses may come to. */
  isClear(tokens: number, doubt: number): boolean {
    return Math.abs(Math.log(tokens / this.ratio)) > SURE * Math.hypot(this.doubt, doubt)
  }

  /** Whether there is anything to compare. */
  get hasTurns(): boolean {
    return this.turns.length > 0
  }

  /** How much longer a round of the rival takes. */
  get ratio(): number {
    return Math.exp(middleOf(this.logRatios))
  }

  /** Seconds of a round with the number in use. */
  get seconds(): number {
    return middleOf(this.turns.map(({ base }) => base))
  }

  private get logRatios(): number[] {
    return this.turns.map(({ base, rival }) => Math.log(rival / base))
  }

  /** The standard error of the ratio's logarithm. */
  private get doubt(): number {
    const ratios = this.logRatios
    const middle = middleOf(ratios)
    return (1.86 * middleOf(ratios.map(ratio => Math.abs(ratio - middle)))) / Math.sqrt(ratios.length)
  }

  private get baseSeconds(): number {
    return mean(this.base.slice(-COUNTED))
  }
}

function settling(guesses: number): number {
  return guesses === 0 ? SETTLING.without : SETTLING.guessing
}

function mean(values: readonly number[]): number {
  return values.reduce((a, b) => a + b) / values.length
}
