// Decides whether reading ahead pays, by trying: a few decode steps with prefetch, a few without, again and again until
// one side is clearly faster in time per step; the better way is then kept for a long while before the next trial.
// Wasted reads, a busy disk and the cost of predicting all show up in that one number. A small state machine without a
// clock of its own, so that tests can drive it.

const trialSteps = 8 // of one way before switching to the other
const trialRounds = 3 // each way that often
const holdSteps = 256 // until the next trial
const keepMargin = 0.99 // prefetch must win by a percent, or it is left off

export class PrefetchGovernor {
  /** Whether to prefetch in the coming step. */
  on: boolean
  private steps = 0 // in this trial or hold
  private trying = true
  private readonly seconds: { on: number[]; off: number[] } = { on: [], off: [] }

  constructor(private readonly allowed: boolean) {
    this.on = allowed
  }

  /** A decode step took this long. `idle`: nothing was read in it, so it says nothing about prefetch. */
  stepDone(seconds: number, idle: boolean): void {
    if (!this.allowed || idle) return
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

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[sorted.length >> 1]
}
