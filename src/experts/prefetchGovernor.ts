// Decides whether reading ahead pays, by trying: a few decode steps with prefetch, a few without, again and again; the
// faster way, by time per step, is then kept for a while before the next trial, and for longer when that agrees. Wasted
// reads, a busy disk and the cost of predicting all show up in that one number. Which way goes first alternates, so that
// a cache that is still filling up favours neither, and what earlier trials said counts as well: machines are noisy. A
// small state machine without a clock of its own, so that tests can drive it.
import { middleOf } from './middleOf.js'

const BLOCK_STEPS = 8 // of one way before switching to the other
const ROUNDS = 4 // of a trial: a block each way
const FIRST_HOLD = 64 // steps until the next trial
const LONGEST_HOLD = 256
const LEAST_SECONDS = 1e-4 // some clocks are so coarse that a step takes none
const KEEP_MARGIN = 0.99 // prefetch must win by a percent, or it is left off

export class PrefetchGovernor {
  /** Whether to prefetch in the coming step. */
  on: boolean
  private trying = true
  private steps = 0 // in this block or hold
  private hold = FIRST_HOLD
  private block: number[] = [] // seconds
  private blocks: number[] = [] // medians of this trial, with and without or the other way round, by turns
  private evidence: number | null = null // logarithm of the time with prefetch over that without, of all trials, fading

  constructor(private readonly allowed: boolean) {
    this.on = allowed
  }

  /** A decode step took this long, with so many reads. */
  stepDone(seconds: number, reads: number): void {
    if (!this.allowed || reads === 0) return // without reads it says nothing about prefetch
    this.steps++
    if (this.trying) this.block.push(seconds)
    if (this.steps < (this.trying ? BLOCK_STEPS : this.hold)) return
    this.steps = 0
    if (this.trying) this.endBlock()
    else this.begin()
  }

  private begin(): void {
    this.trying = true
    this.on = true
  }

  private endBlock(): void {
    this.blocks.push(Math.max(LEAST_SECONDS, middleOf(this.block)))
    this.block = []
    const done = this.blocks.length
    if (done === 2 * ROUNDS) this.decide()
    else if (done % 2 === 1) this.on = !this.on // the next round begins with the way that this one ends with
  }

  private decide(): void {
    let sum = 0
    for (let i = 0; i < ROUNDS; i++) {
      const [first, second] = this.blocks.slice(2 * i, 2 * i + 2)
      sum += Math.log(first / second) * (i % 2 === 0 ? 1 : -1)
    }
    this.blocks = []
    const seen = sum / ROUNDS
    const before = this.evidence
    this.evidence = before === null ? seen : (before + seen) / 2
    const pays = (ratio: number) => ratio < Math.log(KEEP_MARGIN)
    this.on = pays(this.evidence)
    const agrees = before !== null && pays(before) === this.on
    this.hold = agrees ? Math.min(LONGEST_HOLD, 2 * this.hold) : FIRST_HOLD
    this.trying = false
  }
}
