// Decides how many workers a small step runs on. More are not always faster: a small model spends its time at barriers,
// and on a busy machine a barrier waits for whoever the system has put aside. All workers are taken as long as they do
// not wait for each other much. When they do, or when steps are so short that a trial costs nobody anything, the next smaller
// team is tried against them for a few steps; when there are fewer than all, now and then the next larger one. Where there are
// many, the first trial is a survey from half of them to all: readers and the thread that asks for tokens want processors, too, who lacks
// one makes all others wait, and two processors may be one core. The faster by median is kept for a while, longer each
// time nothing changes.
// Steps are compared with their like alone: one with guesses takes longer on any team, and so does one that waits for experts. A model
// whose experts are on their way into memory says nothing of how it will run when they are there, so steps that wait have a survey of
// their own, when they have gone on for long.
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
const PATIENCE = 24 // steps of another kind, in a row, that end a trial
const COLD = 128 // steps in which a model that is used for the first time waits for experts
const MANY = 8 // workers
const SPARE = 2 // processors that others may want, where there are many

export interface TeamStep {
  readonly seconds: number
  readonly waited: number // share of them that the leader waited for the others
  readonly rows: number
  readonly isStalled: boolean // waited for experts, for more than a moment
}

export class TeamGovernor {
  /** Workers that the coming step should run on. */
  size: number
  private chosen: number
  private trial: { readonly size: number; readonly seconds: number[] }[] = [] // empty: holding
  private kind: TeamStep | null = null // of steps that the last trial has compared: one of them
  private others = 0 // steps of another kind, in a row
  private steps = 0 // in this trial or hold
  private hold = WINDOW
  private expected = Number.POSITIVE_INFINITY // seconds per step of the chosen size
  private recent: TeamStep[] = [] // of the last one's kind
  private readonly sizes: readonly number[] // of teams, ascending
  private readonly unsurveyed: Set<boolean> // of steps that are not stalled, and of those that are
  private age = 0 // steps

  constructor(private readonly most: number) {
    this.sizes = teamSizes(most)
    this.unsurveyed = new Set(most >= MANY ? [false, true] : [])
    this.chosen = most >= MANY ? most - SPARE : most
    this.size = this.chosen
  }

  /** A step on `size` workers has ended. */
  stepDone(step: TeamStep): void {
    if (this.most === 1) return
    this.age++
    if (this.trial.length > 0) this.trialStep(step)
    else this.holdStep(step)
  }

  private trialStep(step: TeamStep): void {
    const { trial } = this
    if (!isLike(step, this.kind)) {
      if (++this.others >= PATIENCE) this.end(this.chosen, WINDOW)
      return
    }
    this.others = 0
    const turn = Math.floor(this.steps++ / TRIAL_STEPS)
    trial[turn % trial.length].seconds.push(step.seconds)
    const next = Math.floor(this.steps / TRIAL_STEPS)
    if (next < TRIAL_ROUNDS * trial.length) this.size = trial[next % trial.length].size
    else this.decide()
  }

  private holdStep(step: TeamStep): void {
    this.steps++
    if (!isLike(step, this.recent[0])) this.recent = []
    this.recent.push(step)
    if (this.recent.length <= WINDOW) return
    this.recent.shift()
    const seconds = middleOf(this.recent.map(each => each.seconds))
    if (isLike(step, this.kind) && seconds > SLOWER * this.expected) this.hold = Math.min(this.hold, FIRST_HOLD)
    if (this.unsurveyed.has(step.isStalled) ? step.isStalled && this.age < COLD : this.steps < this.hold) return
    const waitsMuch = middleOf(this.recent.map(each => each.waited)) > MUCH_WAITING
    const sizes = this.rivals(step, waitsMuch || seconds < SHORT_STEP)
    if (sizes.length > 1) this.begin(sizes, step)
  }

  /** The present size and those to try it against. */
  private rivals({ isStalled }: TeamStep, mayBeFewer: boolean): number[] {
    const { sizes, chosen, most } = this
    if (this.unsurveyed.delete(isStalled)) {
      return [chosen, ...sizes.filter(size => size !== chosen && 2 * size >= most)]
    }
    const at = sizes.indexOf(chosen)
    const rivals = [chosen]
    if (at > 0 && mayBeFewer) rivals.push(sizes[at - 1])
    if (chosen < most) rivals.push(sizes[at + 1])
    return rivals
  }

  private begin(sizes: readonly number[], kind: TeamStep): void {
    this.trial = sizes.map(size => ({ size, seconds: [] }))
    this.kind = kind
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
    this.expected = best.seconds
    this.end(best.size, changed ? AFTER_CHANGE : Math.min(LONGEST_HOLD, Math.max(FIRST_HOLD, this.hold * 2)))
  }

  private end(chosen: number, hold: number): void {
    this.chosen = chosen
    this.size = chosen
    this.hold = hold
    this.trial = []
    this.recent = []
    this.others = 0
    this.steps = 0
  }
}

function isLike(step: TeamStep, other: TeamStep | null | undefined): boolean {
  return !other || (step.rows === other.rows && step.isStalled === other.isStalled)
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
