// Decides whether reading ahead pays, by trying: a few decode steps with prefetch, a few without, again and again until
// one side is clearly faster in time per step; the better way is then kept for a long while before the next trial.
// Wasted reads, a busy disk and the cost of predicting all show up in that one number. And how much of a prediction to
// read: its first part is the surest, so wrong guesses are kept to a few percent of all reads by reading less of it. A
// small state machine without a clock of its own, so that tests can drive it.
import { median } from './median.js'

const trialSteps = 8 // of one way before switching to the other
const trialRounds = 3 // each way that often
const holdSteps = 256 // until the next trial
const keepMargin = 0.99 // prefetch must win by a percent, or it is left off
const shareSteps = 8 // between two looks at the wrong guesses
const shareChange = 1 / 8
const mostWrong = 0.04 // of all reads

export class PrefetchGovernor {
  /** Whether to prefetch in the coming step. */
  on: boolean
  /** How much of a prediction to read. */
  share = 0.75
  private reads = 0 // since the last look
  private wrong = 0
  private looks = 0
  private steps = 0 // in this trial or hold
  private trying = true
  private readonly seconds: { on: number[]; off: number[] } = { on: [], off: [] }

  constructor(private readonly allowed: boolean) {
    this.on = allowed
  }

  /** A decode step took this long, with so many reads, of which so many were wrong guesses. */
  stepDone(seconds: number, reads: number, wrong: number): void {
    if (!this.allowed || reads === 0) return // without reads it says nothing about prefetch
    if (this.on) this.judgeGuesses(reads, wrong)
    this.steps++
    if (!this.trying) {
      if (this.steps >= holdSteps) this.begin()
      return
    }
    ;(this.on ? this.seconds.on : this.seconds.off).push(seconds)
    if (this.steps % trialSteps !== 0) return
    if (this.steps < 2 * trialRounds * trialSteps) this.on = !this.on
    else this.decide()
  }

  private judgeGuesses(reads: number, wrong: number): void {
    this.reads += reads
    this.wrong += wrong
    if (++this.looks % shareSteps !== 0) return
    const rate = this.wrong / this.reads
    if (rate > mostWrong) this.share = Math.max(shareChange, this.share - shareChange)
    else if (rate < mostWrong / 2) this.share = Math.min(1, this.share + shareChange)
    this.reads = 0
    this.wrong = 0
  }

  private begin(): void {
    this.trying = true
    this.steps = 0
    this.seconds.on.length = 0
    this.seconds.off.length = 0
    this.on = true
  }

  private decide(): void {
    this.on = median(this.seconds.on) < median(this.seconds.off) * keepMargin
    this.trying = false
    this.steps = 0
  }
}
