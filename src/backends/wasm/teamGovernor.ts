// Decides how many workers a small step runs on. More are not always faster: a small model spends its time at barriers,
// and on a busy machine a barrier waits for whoever the system has put aside. All workers are taken as long as they do
// not wait for each other much. When they do, or when steps are so short that a trial costs nobody anything, the next smaller
// team is tried against them (teamTrial.ts); when there are fewer than all, now and then the next larger one. Where there are
// many, four of five are the beginning: readers and the thread that asks for tokens want processors, too, the host of a
// virtual machine may have given some to others, and who lacks one makes all others wait. The first trial there is a small survey: all
// but two, and half of them, for two processors may be one core. After it neighbours alone are tried, until steps become much slower:
// somebody has come, and there may be another survey. The faster is kept for a while, longer each time nothing changes.
// Steps are compared with their like alone: one with guesses takes longer on any team, and so does one that waits for experts. A model
// whose experts are on their way into memory says nothing of how it will run when they are there, so steps that wait have a survey of
// their own, when they have gone on for long.
// A state machine without a clock of its own. Results never depend on it.
import { upperMedian } from '../../base/median.js'
import { TeamTrial } from './teamTrial.js'

const FIRST_HOLD = 128 // steps between trials
const WARM = 32 // steps before the first survey: code is compiled meanwhile, and a short answer does without one
const SOON = 64 // the same when steps have become slower
const AFTER_CHANGE = 16 // the same when the last trial changed the size
const LONGEST_HOLD = 4096
const SURVEY_HOLD = 256 // steps between a survey and the next one, twice as many each time
const MUCH_WAITING = 0.2 // share of a step
const SOME_WAITING = 0.1 // the same of many: a trial of one or two fewer costs them little
const SHORT_STEP = 0.005 // seconds
const SLOWER = 1.5 // steps this much slower than they were end a hold
const WINDOW = 8 // steps
const LONG_WINDOW = 64 // steps, whose mean shows what hangs cost
const WORSE = 1.12 // the same of many, by the mean of a long window: the trial had met a better moment
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
  private long = { steps: 0, seconds: 0 } // of the usual kind, since the last long window
  private readonly sizes: readonly number[] // of teams, ascending
  private readonly unsurveyed: Set<boolean> // of steps that are not stalled, and of those that are
  private age = 0 // steps
  private nextSurvey = 0 // the age from which on there may be one
  private surveyHold = SURVEY_HOLD

  constructor(
    private readonly most: number,
    processors = most, // that the workers share with others
  ) {
    this.unsurveyed = new Set(most >= MANY ? [false, true] : [])
    this.chosen = most >= MANY ? Math.min(most, fourOfFive(processors)) : most
    this.sizes = teamSizes(most, this.chosen)
  }

  /** Workers that the coming step should run on. */
  get size(): number {
    return this.trial?.size ?? this.chosen
  }

  /** The same for a step of so many tokens. Those of another kind than what is tried run on as many as before. */
  sizeFor(rows: number): number {
    return rows === this.kind?.rows ? this.size : this.chosen
  }

  /** Whether sizes are being tried. */
  get isTrying(): boolean {
    return this.trial !== null
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
    const seconds = upperMedian(this.recent.map(each => each.seconds))
    if (this.isSlow(step, seconds)) {
      this.hold = Math.min(this.hold, SOON)
      if (this.steps >= SOON) this.surveyAgain(step)
    }
    if (this.isWorse(step)) this.hold = Math.min(this.hold, this.steps)
    if (this.isTooEarly(step)) return
    const waited = upperMedian(this.recent.map(each => each.waited))
    const waitsMuch = waited > (this.chosen >= MANY ? SOME_WAITING : MUCH_WAITING)
    const rivals = this.rivals(step, waitsMuch || seconds < SHORT_STEP)
    if (rivals.length === 0) return
    this.trial = new TeamTrial(this.chosen, rivals)
    this.kind = step
    this.others = 0
  }

  private isTooEarly({ isStalled }: TeamStep): boolean {
    if (this.most >= MANY && this.age < (isStalled ? COLD : WARM)) return true
    return !this.isSurveyDue(isStalled) && this.steps < this.hold
  }

  private isSurveyDue(isStalled: boolean): boolean {
    return this.unsurveyed.has(isStalled) && this.age >= this.nextSurvey
  }

  /** Whether steps of this kind have become much slower than they were. */
  private isSlow(step: TeamStep, seconds: number): boolean {
    return this.usual !== null && isLike(step, this.usual.kind) && seconds > SLOWER * this.usual.seconds
  }

  /** Whether a long window has ended that was worse than the trial had promised. */
  private isWorse(step: TeamStep): boolean {
    const { usual, long } = this
    if (this.most < MANY || usual === null || !isLike(step, usual.kind)) return false
    long.seconds += step.seconds
    if (++long.steps < LONG_WINDOW) return false
    this.long = { steps: 0, seconds: 0 }
    return long.seconds > WORSE * LONG_WINDOW * usual.seconds
  }

  /** Somebody else wants the processors: any other number may be better now, not only the next one. */
  private surveyAgain({ isStalled }: TeamStep): void {
    if (this.most >= MANY) this.unsurveyed.add(isStalled)
  }

  /** Sizes to try the present one against. */
  private rivals({ isStalled }: TeamStep, mayBeFewer: boolean): number[] {
    const { sizes, chosen, most } = this
    const at = sizes.indexOf(chosen)
    if (this.isSurveyDue(isStalled)) {
      this.unsurveyed.delete(isStalled)
      this.nextSurvey = this.age + this.surveyHold
      this.surveyHold = Math.min(LONGEST_HOLD, 2 * this.surveyHold)
      const larger = chosen < most ? [sizes[at + 1]] : []
      return [...new Set([...larger, ...surveySizes(most)])].filter(size => size !== chosen)
    }
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
    this.long = { steps: 0, seconds: 0 }
    this.others = 0
    this.steps = 0
  }
}

function isLike(step: TeamStep, other: TeamStep | null | undefined): boolean {
  return !other || (step.rows === other.rows && step.isStalled === other.isStalled)
}

function fourOfFive(most: number): number {
  return Math.floor((most * 13) / 16) // 6 of 8, 13 of 16: where sixteen processors were fastest
}

/** All but two, four of five, half. */
function surveySizes(most: number): number[] {
  return [...new Set([most - SPARE, fourOfFive(most), most >> 1])]
}

/** 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20 and so on, the first and all, and where there are many what a survey tries. */
function teamSizes(most: number, first: number): number[] {
  const sizes = new Set(most >= MANY ? [...surveySizes(most), most - 1, most, first] : [most])
  for (let octave = 1; octave < most; octave *= 2) {
    const parts = octave >= MANY ? 4 : octave > 1 ? 2 : 1
    for (let part = 0; part < parts; part++) sizes.add(octave + (octave * part) / parts)
  }
  return [...sizes].filter(size => size <= most).sort((a, b) => a - b)
}
