// Decides whether reading ahead pays, by trying: a few decode steps with prefetch, a few without, again and again; the
// faster way, by time per step, is then kept for a while, and for longer each time that it proves right. Wasted
// reads, a busy disk and the cost of predicting all show up in that one number. Which way goes first alternates, in blocks
// so short that a cache that is still filling up, or a text that changes its topic, favours neither; and where a trial is not
// clear, what earlier ones said counts as well: machines are noisy. A trial costs the steps of the slower way, which take half
// as long again where experts stream to a GPU. So it ends as soon as one way is clearly faster, and later a look at a few
// steps of the other way is enough while that stays so. A small state machine without a clock of its own, so that tests can
// drive it.
import { upperMedian } from '../base/median.js'

const FIRST_STEPS = 32 // with prefetch and without a judgement, while the cache fills up
const BLOCK_STEPS = 4 // of one way before switching to the other, in a trial or a look
const ROUNDS = 8 // of a trial at most: a block each way
const CLEAR = Math.log(1.15) // by which two rounds must agree to end a trial
const LIKELY = Math.log(1.07) // by which more must differ for that; and for a look instead of a trial, all that was seen before
const STILL = Math.log(1.05) // by which a look must differ to confirm that
const FIRST_HOLD = 64 // steps until the next trial
const LONGEST_HOLD = 512
const LEAST_SECONDS = 1e-4 // some clocks are so coarse that a step takes none
const KEEP_MARGIN = 0.99 // prefetch must win by a percent, or it is left off

export class PrefetchGovernor {
  /** Whether to prefetch in the coming step. */
  on: boolean
  private phase: 'trial' | 'look' | 'hold' = 'hold'
  private held = 0 // steps of this hold
  private hold = FIRST_STEPS
  private block: number[] = [] // seconds
  private blocks: number[] = [] // logarithms of their medians: of a trial with and without or the other way round, by turns
  private evidence: number | null = null // logarithm of the time with prefetch over that without, of all trials, fading

  constructor(private readonly allowed: boolean) {
    this.on = allowed
  }

  /** A decode step took this long, with so many reads. */
  stepDone(seconds: number, reads: number): void {
    if (!this.allowed || reads === 0) return // without reads it says nothing about prefetch
    if (this.phase === 'hold') {
      if (++this.held >= this.hold) this.endHold()
      return
    }
    this.block.push(seconds)
    if (this.block.length < BLOCK_STEPS) return
    this.blocks.push(Math.log(Math.max(LEAST_SECONDS, upperMedian(this.block))))
    this.block = []
    if (this.phase === 'trial') this.endTrialBlock()
    else this.endLookBlock()
  }

  private endHold(): void {
    if (Math.abs(this.evidence ?? 0) > LIKELY) this.phase = 'look'
    else this.beginTrial()
  }

  private beginTrial(): void {
    this.phase = 'trial'
    this.on = true
    this.blocks = []
  }

  private beginHold(agrees: boolean): void {
    this.phase = 'hold'
    this.hold = agrees ? Math.min(LONGEST_HOLD, Math.max(FIRST_HOLD, this.hold) * 2) : FIRST_HOLD
    this.held = 0
    this.blocks = []
  }

  private endLookBlock(): void {
    if (this.blocks.length < 3) {
      this.on = !this.on
      return
    }
    const [before, other, after] = this.blocks
    if (other - (before + after) / 2 > STILL) this.beginHold(true)
    else this.beginTrial()
  }

  private endTrialBlock(): void {
    const done = this.blocks.length
    // The next round begins with the way that this one ends with.
    if (done % 2 === 1) {
      this.on = !this.on
      return
    }
    const seen: number[] = [] // logarithms of the time with prefetch over that without
    for (let i = 0; i < done; i += 2) seen.push((this.blocks[i] - this.blocks[i + 1]) * (i % 4 === 0 ? 1 : -1))
    const mean = seen.reduce((sum, each) => sum + each, 0) / seen.length
    const isClear = seen.length % 2 === 0 && isSure(seen, mean)
    if (isClear || seen.length === ROUNDS) this.decide(mean, isClear)
  }

  private decide(seen: number, isClear: boolean): void {
    const before = this.evidence
    this.evidence = before === null || isClear ? seen : (before + seen) / 2
    const pays = (ratio: number) => ratio < Math.log(KEEP_MARGIN)
    this.on = pays(this.evidence)
    this.beginHold(isClear || (before !== null && pays(before) === this.on && pays(seen) === this.on))
  }
}

/** Whether it is no chance that rounds differ from nothing: an even number of them, since each way has been first as often. */
function isSure(rounds: readonly number[], mean: number): boolean {
  const agree = rounds.every(each => each > 0 === mean > 0)
  if (rounds.length === 2) return agree && Math.abs(mean) > CLEAR
  const variance = rounds.reduce((sum, each) => sum + (each - mean) ** 2, 0) / (rounds.length - 1)
  return Math.abs(mean) > LIKELY && Math.abs(mean) > 3 * Math.sqrt(variance / rounds.length)
}
