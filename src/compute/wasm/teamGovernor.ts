// Decides how many workers a small step runs on. More are not always faster: a small model spends its time at barriers,
// and on a busy machine a barrier waits for whoever the system has put aside. All workers are taken as long as they do
// not wait for each other much. When they do, or when steps are so short that a trial costs nobody anything, the next smaller
// team is tried against them for a few steps; when there are fewer than all, now and then the next larger one. Where there are
// many, the first trial is a survey from half of them to all: readers and the thread that asks for tokens want processors, too, who lacks
// one makes all others wait, and two processors may be one core. The faster by median is kept for a while, longer each
// time nothing changes.
// Steps are compared with those of as many rows alone: one with guesses takes longer on any team.
// A state machine without a clock of its own. Results never depend on it.
import { middleOf } from '../../experts/middleOf.js'

const TRIAL_STEPS = 2 // of one size before the next
const TRIAL_ROUNDS = 4 // each size that often
const FIRST_HOLD = 64 // steps between trials
const AFTER_CHANGE = 16 // the same when the last trial changed the size
const LONGEST_HOLD = 2048
const CHANGE_MARGIN = 0.96 // another size must be faster by this much
const MUCH_WAITING = 0.2 // share of a step
const SHORT_STEP = 0.005 // seconds
const SLOWER = 1.5 // steps this much slower than they were end a hold
const WINDOW = 8 // steps
const PATIENCE = 32 // steps of other rows before a trial begins anew with theirs
const MANY = 8 // workers
const SPARE = 2 // processors that others may want, where there are many

interface Step {
  readonly rows: number
  readonly seconds: number
  readonly waited: number
}

export class TeamGovernor {
  /** Workers that the coming step should run on. */
  size: number
  private chosen: number
  private trial: { readonly size: number; readonly seconds: number[] }[] = [] // empty: holding
  private trialRows = 0 // of the steps that it compares
  private others = 0 // steps with more or fewer, in a row
  private steps = 0 // in this trial or hold
  private hold = WINDOW
  private expected = Number.POSITIVE_INFINITY // seconds per step of the chosen size
  private recent: Step[] = [] // of as many rows as the last one
  private readonly sizes: readonly number[] // of teams, ascending
  private isUnsurveyed: boolean

  constructor(private readonly most: number) {
    this.sizes = teamSizes(most)
    this.isUnsurveyed = most >= MANY
    this.chosen = this.isUnsurveyed ? most - SPARE : most
    this.size = this.chosen
  }

  /** A step of so many rows on `size` workers took this long, of which the leader spent this share waiting for the others. */
  stepDone(seconds: number, waited: number, rows = 1): void {
    if (this.most === 1) return
    if (this.trial.length > 0) this.trialStep(seconds, rows)
    else this.holdStep({ rows, seconds, waited })
  }

  private trialStep(seconds: number, rows: number): void {
    const { trial } = this
    if (rows !== this.trialRows) {
      if (++this.others >= PATIENCE)
        this.begin(
          trial.map(({ size }) => size),
          rows,
        )
      return
    }
    this.others = 0
    const turn = Math.floor(this.steps++ / TRIAL_STEPS)
    trial[turn % trial.length].seconds.push(seconds)
    const next = Math.floor(this.steps / TRIAL_STEPS)
    if (next < TRIAL_ROUNDS * trial.length) this.size = trial[next % trial.length].size
    else this.decide()
  }

  private holdStep(step: Step): void {
    this.steps++
    if (this.recent.length > 0 && this.recent[0].rows !== step.rows) this.recent = []
    this.recent.push(step)
    if (this.recent.length <= WINDOW) return
    this.recent.shift()
    const seconds = middleOf(this.recent.map(each => each.seconds))
    if (step.rows === this.trialRows && seconds > SLOWER * this.expected) this.hold = Math.min(this.hold, FIRST_HOLD)
    if (this.steps < this.hold) return
    const waitsMuch = middleOf(this.recent.map(each => each.waited)) > MUCH_WAITING
    const sizes = this.rivals(waitsMuch || seconds < SHORT_STEP)
    if (sizes.length > 1) this.begin(sizes, step.rows)
  }

  /** The present size and those to try it against. */
  private rivals(mayBeFewer: boolean): number[] {
    const { sizes, chosen, most } = this
    if (this.isUnsurveyed) {
      this.isUnsurveyed = false
      return [chosen, ...sizes.filter(size => size !== chosen && 2 * size >= most)]
    }
    const at = sizes.indexOf(chosen)
    const rivals = [chosen]
    if (at > 0 && mayBeFewer) rivals.push(sizes[at - 1])
    if (chosen < most) rivals.push(sizes[at + 1])
    return rivals
  }

  private begin(sizes: readonly number[], rows: number): void {
    this.trial = sizes.map(size => ({ size, seconds: [] }))
    this.trialRows = rows
    this.others = 0
    this.steps = 0
  }

  private decide(): void {
    const results = this.trial.map(({ size, seconds }) => ({ size, seconds: middleOf(seconds) }))
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

/** 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20 and so on, all, and where there are many all but two. */
function teamSizes(most: number): number[] {
  const sizes = new Set([most])
  if (most >= MANY) sizes.add(most - SPARE)
  for (let octave = 1; octave < most; octave *= 2) {
    const parts = octave >= MANY ? 4 : octave > 1 ? 2 : 1
    for (let part = 0; part < parts; part++) sizes.add(octave + (octave * part) / parts)
  }
  return [...sizes].filter(size => size <= most).sort((a, b) => a - b)
}
