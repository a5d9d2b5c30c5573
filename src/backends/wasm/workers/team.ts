// How compute workers keep in step: a barrier and shared work counters over a few words of shared memory. Every worker
// runs the same code over the same phases; which rows it takes in a phase is decided as it goes (`ranges`), so a worker
// that was preempted does not hold the others up by a whole share. Results never depend on who computed a row.
// A team of one needs no shared memory and never waits.
//
// Counters are a ring. The leader clears the one half a ring ahead when it opens a phase; that is right as long as no
// more than half a ring of phases lies between two barriers, which `begin` checks: a phase's counter was then last used
// before a barrier that all have passed, and is cleared before one that all will pass (docs/dev/workers.md).
import type { Words } from './sharedWords.js'

// A cache line each: who arrives would take the line away from all those who watch the generation.
export const ARRIVED = 0
const PHASE = 3 // where in the ring the last job ended
export const GENERATION = 16
const SLEEPERS = 32
const COUNTERS = 48
const COUNTER_STRIDE = 16 // i32: one cache line each
const RING = 64

export const TEAM_WORDS = COUNTERS + RING * COUNTER_STRIDE

/** About 30 µs: longer than any phase's imbalance, shorter than waking a sleeping thread twice. */
const SPINS = 4000

export interface TeamLimits {
  readonly ring: number // counters, an even number
  readonly spins: number // looks at a barrier before sleeping
}

export const defaultLimits: TeamLimits = { ring: RING, spins: SPINS }

export class Team {
  /** Members that take part in the present job: those of the lowest indices. */
  size = 1
  /** Seconds that this member has waited for others so far. */
  waited = 0
  private phase = 0
  private phaseLimit = 0 // the first phase that may only begin after another barrier

  constructor(
    readonly index: number,
    private readonly words: Words, // shared between the members
    private readonly base: number, // of TEAM_WORDS
    private readonly limits: TeamLimits = defaultLimits,
  ) {}

  get isLeader(): boolean {
    return this.index === 0
  }

  /** Every member of a job begins it with this, and ends it with `leave`. */
  start(size: number): void {
    this.size = size
    this.phase = this.words.get(this.base + PHASE)
    this.phaseLimit = this.phase + this.limits.ring / 2
  }

  /**
   * The way out of a job, however it went: returns when every member is on it. From here on members touch no word of the
   * job, except for the leader, which has results to put down before it tells the main thread.
   */
  leave(): void {
    this.barrier()
    if (this.isLeader) this.words.set(this.base + PHASE, this.phase % this.limits.ring)
  }

  /** Returns when every member has called it. What a member wrote before is visible to all after. */
  barrier(): void {
    this.phaseLimit = this.phase + this.limits.ring / 2
    if (this.size > 1) this.meet()
  }

  /** The last to come sets the count back and moves the generation on, which the others watch. */
  protected meet(): void {
    const { words, base } = this
    const generation = words.load(base + GENERATION)
    if (words.add(base + ARRIVED, 1) === this.size - 1) {
      words.store(base + ARRIVED, 0)
      words.add(base + GENERATION, 1)
      if (words.load(base + SLEEPERS) > 0) words.notify(base + GENERATION)
      return
    }
    const from = performance.now()
    this.waitFor(generation)
    this.waited += (performance.now() - from) / 1000
  }

  private waitFor(generation: number): void {
    const { words, base, limits } = this
    for (let spin = 0; spin < limits.spins; spin++) {
      if (words.load(base + GENERATION) !== generation) return
    }
    words.add(base + SLEEPERS, 1)
    while (words.load(base + GENERATION) === generation) words.wait(base + GENERATION, generation)
    words.add(base + SLEEPERS, -1)
  }

  /** Opens a phase: the members share out its units through `claim`. All members must open the same phases in order. */
  begin(): number {
    const { ring } = this.limits
    const phase = this.phase++
    if (phase === this.phaseLimit) throw new Error(`more than ${ring / 2} phases without a barrier`)
    if (this.index === 0) this.words.store(this.counter(phase + ring / 2), 0)
    return this.counter(phase)
  }

  private counter(phase: number): number {
    return this.base + COUNTERS + (phase % this.limits.ring) * COUNTER_STRIDE
  }

  /** Takes the next `grain` units of the phase; the first of them, which may be past the end. */
  claim(counter: number, grain: number): number {
    return this.words.add(counter, grain)
  }

  /** Runs `work(start, end)` over `total` units, cut at multiples of `grain`, shared out between the members. */
  ranges(total: number, grain: number, work: (start: number, end: number) => void): void {
    const counter = this.begin()
    if (this.size > 1) this.shareOut(counter, total, grain, work)
    else if (total > 0) work(0, total)
  }

  protected shareOut(counter: number, total: number, grain: number, work: (start: number, end: number) => void): void {
    for (;;) {
      const start = this.claim(counter, grain)
      if (start >= total) return
      work(start, Math.min(total, start + grain))
    }
  }
}
