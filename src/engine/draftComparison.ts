// Rounds with several numbers of guesses, in turns, and how long each takes: by medians, which a round that the system put aside
// does not move, and with what these are uncertain by. Goes on until it is clear what pays, or until it does not matter.
import { middleOf } from '../experts/middleOf.js'

const STRETCH = 2 // rounds with one number before the next
const LEAST_TURNS = 5 // of each number
const MOST_TURNS = 20
const SURE = 2 // times what turns differ by

export class DraftComparison {
  private readonly times: number[][]
  private rounds = 0

  /** Of guesses, 0 first. */
  constructor(readonly counts: readonly number[]) {
    this.times = counts.map(() => [])
  }

  /** What the next round should have. */
  get count(): number {
    return this.counts[Math.floor(this.rounds / STRETCH) % this.counts.length]
  }

  /** A round with `count` guesses took so long. */
  add(seconds: number): void {
    this.times[this.counts.indexOf(this.count)].push(seconds)
    this.rounds++
  }

  /** `tokens`: of a round with so many guesses. */
  isDone(tokens: (count: number) => number): boolean {
    const { counts, rounds } = this
    if (rounds % (STRETCH * counts.length) !== 0) return false
    const turns = rounds / STRETCH / counts.length
    if (turns < LEAST_TURNS) return false
    return turns >= MOST_TURNS || counts.slice(1).every(count => this.isClear(count, tokens(count) / tokens(0)))
  }

  /** Seconds of a round. */
  seconds(count: number): number {
    return middleOf(this.times[this.counts.indexOf(count)])
  }

  /** How much longer a round with `count` guesses takes than one with `other`. */
  ratio(count: number, other: number): number {
    return this.seconds(count) / this.seconds(other)
  }

  private isClear(count: number, tokens: number): boolean {
    return Math.abs(Math.log(tokens / this.ratio(count, 0))) > SURE * this.doubt(count)
  }

  /** The standard error of how much longer rounds take than those without, by what it was turn by turn: what slows down both says nothing. */
  private doubt(count: number): number {
    const without = this.turns(0)
    const ratios = this.turns(count).map((seconds, turn) => Math.log(seconds / without[turn]))
    const middle = middleOf(ratios)
    const distance = middleOf(ratios.map(ratio => Math.abs(ratio - middle)))
    return (1.86 * distance) / Math.sqrt(ratios.length)
  }

  /** Seconds of each turn of a number. */
  private turns(count: number): number[] {
    const times = this.times[this.counts.indexOf(count)]
    const turns: number[] = []
    for (let at = 0; at < times.length; at += STRETCH) turns.push(times.slice(at, at + STRETCH).reduce((a, b) => a + b))
    return turns
  }
}
