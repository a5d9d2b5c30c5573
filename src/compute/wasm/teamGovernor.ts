// Decides how many workers a small step runs on. More are not always faster: a small model spends its time at barriers,
// and on a busy machine a barrier waits for whoever the system has put aside. All workers are taken as long as they do
// not wait for each other much. When they do, or when steps are so short that a trial costs nobody anything, the next smaller
// team is tried against them for a few steps; when there are fewer than all, now and then the next larger one. Where there are
// many, the first team is two smaller than all, and its neighbours are tried once in any case: readers and the thread that asks
// for tokens want processors, too, and who lacks one makes all others wait. The faster by median is kept for a while, longer
// each time nothing changes.
// A state machine without a clock of its own. Results never depend on it.
import { median } from '../../experts/median.js'

const TRIAL_STEPS = 2 // of one size before the next
const TRIAL_ROUNDS = 3 // each size that often
const FIRST_HOLD = 64 // steps between trials
const AFTER_CHANGE = 16 // the same when the last trial changed the size
const LONGEST_HOLD = 2048
const CHANGE_MARGIN = 0.95 // another size must be faster by this much
const MUCH_WAITING = 0.2 // share of a step
const SHORT_STEP = 0.005 // seconds
const SLOWER = 1.5 // steps this much slower than they were end a hold
const WINDOW = 8 // steps
const MANY = 8 // workers
const SPARE = 2 // processors that others may want, where there are many

export class TeamGovernor {
  /** Workers that the coming step should run on. */
  size: number
  private chosen: number
  private trial: { readonly size: number; readonly seconds: number[] }[] = [] // empty: holding
  private steps = 0 // in this trial or hold
  private hold = WINDOW
  private expected = Number.POSITIVE_INFINITY // seconds per step of the chosen size
  private recent: { readonly seconds: number; readonly waited: number }[] = []
  private readonly sizes: readonly number[] // of teams, ascending
  private isUntried: boolean // where there are many

  constructor(private readonly most: number) {
    this.sizes = teamSizes(most)
    this.isUntried = most >= MANY
    this.chosen = this.isUntried ? most - SPARE : most
    this.size = this.chosen
  }

  /** A step on `size` workers took this long, of which the leader spent this share waiting for the others. */
  stepDone(seconds: number, waited: number): void {
    if (this.most === 1) return
    this.steps++
    if (this.trial.length > 0) this.trialStep(seconds)
    else this.holdStep(seconds, waited)
  }

  private trialStep(seconds: number): void {
    const { trial } = this
    const turn = Math.floor((this.steps - 1) / TRIAL_STEPS)
    trial[turn % trial.length].seconds.push(seconds)
    const next = Math.floor(this.steps / TRIAL_STEPS)
    if (next < TRIAL_ROUNDS * trial.length) this.size = trial[next % trial.length].size
    else this.decide()
  }

  private holdStep(seconds: number, waited: number): void {
    this.recent.push({ seconds, waited })
    if (this.recent.length <= WINDOW) return
    this.recent.shift()
    if (median(this.recent.map(step => step.seconds)) > SLOWER * this.expected) {
      this.hold = Math.min(this.hold, FIRST_HOLD)
    }
    if (this.steps < this.hold) return
    const at = this.sizes.indexOf(this.chosen)
    const sizes = [this.chosen]
    const waitsMuch = median(this.recent.map(step => step.waited)) > MUCH_WAITING
    const isShort = median(this.recent.map(step => step.seconds)) < SHORT_STEP
    if (at > 0 && (waitsMuch || isShort || this.isUntried)) sizes.push(this.sizes[at - 1])
    if (this.chosen < this.most) sizes.push(this.sizes[at + 1])
    this.isUntried = false
    if (sizes.length > 1) this.begin(sizes)
  }

  private begin(sizes: readonly number[]): void {
    this.trial = sizes.map(size => ({ size, seconds: [] }))
    this.steps = 0
  }

  private decide(): void {
    const results = this.trial.map(({ size, seconds }) => ({ size, seconds: median(seconds) }))
    let best = results[0]
    for (const result of results.slice(1)) {
      if (result.seconds < best.seconds * (best === results[0] ? CHANGE_MARGIN : 1)) best = result
    }
    const changed = best.size !== this.chosen
    this.hold = changed ? AFTER_CHANGE : Math.min(LONGEST_HOLD, Math.max(FIRST_HOLD, this.hold * 2))
    this.chosen = best.size
    this.size = best.size
    this.expected = best.seconds
    this.trial = []
    this.recent = []
    this.steps = 0
  }
}

/** 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on, all, and where there are many all but two. */
function teamSizes(most: number): number[] {
  const sizes: number[] = []
  for (let size = 1; size < most; size *= 2) {
    sizes.push(size)
    if (size > 1 && 1.5 * size < most) sizes.push(1.5 * size)
  }
  if (most >= MANY) sizes.push(most - SPARE)
  return [...new Set([...sizes, most])].sort((a, b) => a - b)
}
