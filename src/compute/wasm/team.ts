// How compute workers keep in step: a barrier and shared work counters over a few words of shared memory. Every worker
// runs the same code over the same phases; which rows it takes in a phase is decided as it goes (`ranges`), so a worker
// that was preempted does not hold the others up by a whole share. Results never depend on who computed a row.
// A team of one needs no shared memory and never waits.

const ARRIVED = 0
const GENERATION = 1
const SLEEPERS = 2
const PHASE = 3 // where the last job ended
const COUNTERS = 16 // a cache line apart from the barrier's words
const COUNTER_STRIDE = 16 // i32: one cache line each
const COUNTER_COUNT = 64

export const TEAM_WORDS = COUNTERS + COUNTER_COUNT * COUNTER_STRIDE

/** About 30 µs: longer than any phase's imbalance, shorter than waking a sleeping thread twice. */
const SPINS = 4000

export class Team {
  /** Members that take part in the present job: those of the lowest indices. */
  size = 1
  /** Seconds that this member has waited for others so far. */
  waited = 0
  private phase = 0

  constructor(
    readonly index: number,
    private readonly words: Int32Array, // [TEAM_WORDS], shared between the members
  ) {}

  get isLeader(): boolean {
    return this.index === 0
  }

  /** Every member of a job begins it with this, and the leader ends it with `finish`. */
  start(size: number): void {
    this.size = size
    this.phase = this.words[PHASE]
  }

  finish(): void {
    this.words[PHASE] = this.phase
  }

  /** Returns when every member has called it. What a member wrote before is visible to all after. */
  barrier(): void {
    if (this.size === 1) return
    const words = this.words
    const generation = Atomics.load(words, GENERATION)
    if (Atomics.add(words, ARRIVED, 1) === this.size - 1) {
      Atomics.store(words, ARRIVED, 0)
      Atomics.add(words, GENERATION, 1)
      if (Atomics.load(words, SLEEPERS) > 0) Atomics.notify(words, GENERATION)
      return
    }
    const from = performance.now()
    this.waitFor(generation)
    this.waited += (performance.now() - from) / 1000
  }

  private waitFor(generation: number): void {
    const { words } = this
    for (let spin = 0; spin < SPINS; spin++) {
      if (Atomics.load(words, GENERATION) !== generation) return
    }
    Atomics.add(words, SLEEPERS, 1)
    while (Atomics.load(words, GENERATION) === generation) Atomics.wait(words, GENERATION, generation)
    Atomics.sub(words, SLEEPERS, 1)
  }

  /** Opens a phase: the members share out its units through `claim`. All members must open the same phases in order. */
  begin(): number {
    const phase = this.phase++
    // The counter half a ring ahead was last used long before the barrier that all have passed since.
    if (this.index === 0) {
      Atomics.store(this.words, COUNTERS + ((phase + COUNTER_COUNT / 2) % COUNTER_COUNT) * COUNTER_STRIDE, 0)
    }
    return COUNTERS + (phase % COUNTER_COUNT) * COUNTER_STRIDE
  }

  /** Takes the next `grain` units of the phase; the first of them, which may be past the end. */
  claim(counter: number, grain: number): number {
    return Atomics.add(this.words, counter, grain)
  }

  /** Runs `work(start, end)` over `total` units, cut at multiples of `grain`, shared out between the members. */
  ranges(total: number, grain: number, work: (start: number, end: number) => void): void {
    const counter = this.begin()
    if (this.size === 1) {
      if (total > 0) work(0, total)
      return
    }
    for (;;) {
      const start = this.claim(counter, grain)
      if (start >= total) return
      work(start, Math.min(total, start + grain))
    }
  }
}
