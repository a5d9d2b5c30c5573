// Decides how many workers a small step runs on. More are not always faster: a small model spends its time at barriers,
// and on a busy machine a barrier waits for whoever the system has put aside. All workers are taken as long as they do
// not wait for each other much. When they do, or when steps are so short that a trial costs nobody anything, the next smaller
// team is tried against them (teamTrial.ts); when there are fewer than all, now and then the next larger one. Where there are
// many, the first trial is a survey from half of them to all: readers and the thread that asks for tokens want processors, too, who lacks
// one makes all others wait, and two processors may be one core. The faster is kept for a while, longer each time nothing changes.
// Steps are compared with their like alone: one with guesses takes longer on any team, and so does one that waits for experts. A model
// whose experts are on their way into memory says nothing of how it will run when they are there, so steps that wait have a survey of
// their own, when they have gone on for long.
// A state machine without a clock of its own. Results never depend on it.

import { middleOf } from '../../experts/middleOf.js'
import { TeamTrial } from './teamTrial.js'

const FIRST_HOLD = 128 // steps between trials
const SOON = 64 // the same when steps have become slower
const AFTER_CHANGE = 16 // the same when the last trial changed the size
const LONGEST_HOLD = 4096
const SURVEY_HOLD = 512 // steps between a survey and the next one, twice as many each time
const MUCH_WAITING = 0.2 // share of a step
const SOME_WAITING = 0.1 // the same of many: a trial of one or two fewer costs them little
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
  private chosen: number
  private trial: TeamTrial | null = null // null: holding
  private kind: TeamStep | null = null // of steps that the present trial compares: one of them
  private others = 0 // steps of another kind, in a row
  private steps = 0 // in this hold
  private hold = WINDOW
  private usual: { readonly seconds: number; readonly kind: TeamStep | null } | null = null // of the chosen size, by the last trial
  private recent: TeamStep[] = [] // of the last one's kind
  private readonly sizes: readonly number[] // of teams, ascending
  private readonly unsurveyed: Set<boolean> // of steps that are not stalled, and of those that are
  private age = 0 // steps
  private nextSurvey = 0 // the age from which on there may be one
  private surveyHold = SURVEY_HOLD

  constructor(private readonly most: number) {
    this.sizes = teamSizes(most)
    this.unsurveyed = new Set(most >= MANY ? [false, true] : [])
    this.chosen = most >= MANY ? most - SPARE : most
  }

  /** Workers that the coming step should run on. */
  get size(): number {
    return this.trial?.size ?? this.chosen
  }

  /** A step on `size` workers has ended. */
  stepDone(step: TeamStep): void {
    if (this.most === 1) return
    this.age++
    if (this.trial) this.trialStep(step, this.trial)
    else this.holdStep(step)
  }

  /** A prompt came between: the step after it finds other things in the caches. */
  interrupt(): void {
    this.trial?.interrupt()
  }

  private trialStep(step: TeamStep, trial: TeamTrial): void {
    if (!isLike(step, this.kind)) {
      if (++this.others >= PATIENCE) this.end(this.chosen, WINDOW)
      return
    }
    this.others = 0
    trial.stepDone(step.seconds)
    if (!trial.result) return
    const { size, seconds } = trial.result
    if (this.isSlow(step, seconds)) this.surveyAgain(step)
    this.usual = { seconds, kind: this.kind }
    const changed = size !== this.chosen
    this.end(size, changed ? AFTER_CHANGE : Math.min(LONGEST_HOLD, Math.max(FIRST_HOLD, this.hold * 2)))
  }

  private holdStep(step: TeamStep): void {
    this.steps++
    if (!isLike(step, this.recent[0])) this.recent = []
    this.recent.push(step)
    if (this.recent.length <= WINDOW) return
    this.recent.shift()
    const seconds = middleOf(this.recent.map(each => each.seconds))
    if (this.isSlow(step, seconds)) {
      this.hold = Math.min(this.hold, SOON)
      if (this.steps >= SOON) this.surveyAgain(step)
    }
    if (this.unsurveyed.has(step.isStalled) ? step.isStalled && this.age < COLD : this.steps < this.hold) return
    const waited = middleOf(this.recent.map(each => each.waited))
    const waitsMuch = waited > (this.chosen >= MANY ? SOME_WAITING : MUCH_WAITING)
    const rivals = this.rivals(step, waitsMuch || seconds < SHORT_STEP)
    if (rivals.length === 0) return
    this.trial = new TeamTrial(this.chosen, rivals)
    this.kind = step
    this.others = 0
  }

  /** Whether steps of this kind have become much slower than they were. */
  private isSlow(step: TeamStep, seconds: number): boolean {
    return this.usual !== null && isLike(step, this.usual.kind) && seconds > SLOWER * this.usual.seconds
  }

  /** Somebody else wants the processors: any other number may be better now, not only the next one. */
  private surveyAgain({ isStalled }: TeamStep): void {
    if (this.most < MANY || this.age < this.nextSurvey) return
    this.unsurveyed.add(isStalled)
  }

  /** Sizes to try the present one against. */
  private rivals({ isStalled }: TeamStep, mayBeFewer: boolean): number[] {
    const { sizes, chosen, most } = this
    if (this.unsurveyed.delete(isStalled)) {
      this.nextSurvey = this.age + this.surveyHold
      this.surveyHold = Math.min(LONGEST_HOLD, 2 * this.surveyHold)
      return surveySizes(most).filter(size => size !== chosen)
    }
    const at = sizes.indexOf(chosen)
    const rivals: number[] = []
    if (at > 0 && mayBeFewer) rivals.push(sizes[at - 1])
    if (chosen < most) rivals.push(sizes[at + 1])
    return rivals
  }

  private end(chosen: number, hold: number): void {
    this.chosen = chosen
    this.hold = hold
    this.trial = null
    this.recent = []
    this.others = 0
    this.steps = 0
  }
}

function isLike(step: TeamStep, other: TeamStep | null | undefined): boolean {
  return !other || (step.rows === other.rows && step.isStalled === other.isStalled)
}

/** All, all but one, two and four, three quarters, half. */
function surveySizes(most: number): number[] {
  return [...new Set([most, most - 1, most - 2, most - 4, Math.round((most * 3) / 4), most >> 1])]
}

/** 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20 and so on, all, and where there are many what a survey tries. */
function teamSizes(most: number): number[] {
  const sizes = new Set(most >= MANY ? surveySizes(most) : [most])
  for (let octave = 1; octave < most; octave *= 2) {
    const parts = octave >= MANY ? 4 : octave > 1 ? 2 : 1
    for (let part = 0; part < parts; part++) sizes.add(octave + (octave * part) / parts)
  }
  return [...sizes].filter(size => size <= most).sort((a, b) => a - b)
}
