// Decides how many workers a small step runs on, by trying. More workers are not always faster: a small model spends its
// time at barriers, and on a busy machine a barrier waits for whoever the system has put aside. The present number is
// tried against half and twice as many, a few steps each, again and again; the best by median time per step is kept for
// a while, longer each time nothing changes. A state machine without a clock of its own. Results never depend on it.

const TRIAL_STEPS = 4 // of one size before the next
const TRIAL_ROUNDS = 3 // each size that often
const FIRST_HOLD = 64 // steps until the next trial
const LONGEST_HOLD = 2048
const CHANGE_MARGIN = 0.95 // another size must be faster by this much
const DRIFT = 1.5 // steps this much slower than they were call for a trial
const DRIFT_WINDOW = 16

export class TeamGovernor {
  /** Workers that the coming step should run on. */
  size: number
  private chosen: number
  private candidates: readonly number[] = []
  private samples: number[][] = []
  private steps = 0 // in this trial or hold
  private hold = FIRST_HOLD
  private expected = 0 // seconds per step of the chosen size
  private recent: number[] = []

  constructor(private readonly most: number) {
    this.chosen = most
    this.size = most
    this.beginTrial()
  }

  /** A step on `size` workers took this long. */
  stepDone(seconds: number): void {
    if (this.most === 1) return
    this.steps++
    if (this.candidates.length > 0) this.trialStep(seconds)
    else this.holdStep(seconds)
  }

  private trialStep(seconds: number): void {
    const { candidates } = this
    const turn = Math.floor((this.steps - 1) / TRIAL_STEPS)
    this.samples[turn % candidates.length].push(seconds)
    const next = Math.floor(this.steps / TRIAL_STEPS)
    if (next < TRIAL_ROUNDS * candidates.length) this.size = candidates[next % candidates.length]
    else this.decide()
  }

  private holdStep(seconds: number): void {
    this.recent.push(seconds)
    if (this.recent.length > DRIFT_WINDOW) this.recent.shift()
    const drifted = this.recent.length === DRIFT_WINDOW && median(this.recent) > DRIFT * this.expected
    if (drifted) this.hold = FIRST_HOLD
    if (drifted || this.steps >= this.hold) this.beginTrial()
  }

  private beginTrial(): void {
    const sizes = [this.chosen, Math.ceil(this.chosen / 2), Math.min(this.most, this.chosen * 2)]
    this.candidates = [...new Set(sizes)]
    this.samples = this.candidates.map(() => [])
    this.steps = 0
    this.size = this.chosen
  }

  private decide(): void {
    const medians = this.samples.map(median)
    let best = 0
    for (let i = 1; i < medians.length; i++) {
      if (medians[i] < medians[best] * (best === 0 ? CHANGE_MARGIN : 1)) best = i
    }
    this.hold = best === 0 ? Math.min(LONGEST_HOLD, this.hold * 2) : FIRST_HOLD
    this.chosen = this.candidates[best]
    this.size = this.chosen
    this.expected = medians[best]
    this.candidates = []
    this.recent = []
    this.steps = 0
  }
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[sorted.length >> 1]
}
