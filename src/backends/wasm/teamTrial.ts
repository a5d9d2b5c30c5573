// Sizes of teams against each other: each runs a stretch of steps in its turn, round after round, so that all meet the same
// machine. A stretch counts by its mean: a size that is put aside in every fifth step is slow, however fast the other four are.
// A stretch that is far from the usual one of its size does not count: something else happened meanwhile. What is hopeless is left
// out. The size that was in use stays unless another one was clearly faster, and most of the times; a smaller one need not be that
// much faster, for it leaves more to others.
// A state machine without a clock of its own.
import { upperMedian } from '../../base/median.js'

const STRETCH = 5 // steps, after one that wakes those who slept
const ROUNDS = 6
const HOPELESS = { first: 1.4, later: 1.15 } // even its fastest stretch is slower than the best size's usual one by this much
const OUTLIER = 4 // a stretch this much slower than the middle one
const FASTER = { larger: 0.96, smaller: 0.98 } // what another size must need of the time
const MOST_LOST = 2 // rounds that it may lose nevertheless

interface Side {
  readonly size: number
  readonly stretches: number[] // mean seconds of a step
}

export interface TrialResult {
  readonly size: number
  readonly seconds: number // per step
}

export class TeamTrial {
  /** Null as long as it goes on. */
  result: TrialResult | null = null
  private sides: Side[]
  private at = 0 // whose turn it is
  private steps = 0 // in this stretch
  private seconds = 0

  constructor(
    private readonly present: number, // the size in use
    rivals: readonly number[],
  ) {
    this.sides = [present, ...rivals].map(size => ({ size, stretches: [] }))
  }

  /** Workers that the coming step should run on. */
  get size(): number {
    return this.result?.size ?? this.sides[this.at].size
  }

  /** Something else came between: what this stretch has seen so far does not count. */
  interrupt(): void {
    this.steps = 0
    this.seconds = 0
  }

  stepDone(seconds: number): void {
    if (this.steps++ > 0) this.seconds += seconds
    if (this.steps <= STRETCH) return
    this.sides[this.at].stretches.push(this.seconds / STRETCH)
    this.interrupt()
    if (++this.at === this.sides.length) this.endRound()
  }

  private endRound(): void {
    this.at = 0
    const rounds = this.sides[0].stretches.length
    const best = Math.min(...this.sides.map(usual))
    const most = best * HOPELESS[rounds === 1 ? 'first' : 'later']
    const inUse = this.sides.find(({ size }) => size === this.present)
    this.sides = this.sides.filter(side => {
      if (side === inUse && rounds === 1) return true
      return Math.min(...side.stretches) <= most && !(inUse && lostRounds(side, inUse) > MOST_LOST)
    })
    if (this.sides.length === 1 || rounds === ROUNDS) this.result = this.decide()
  }

  private decide(): TrialResult {
    const { sides, present } = this
    const inUse = sides.find(({ size }) => size === present)
    const fastest = sides.reduce((best, side) => (usual(side) < usual(best) ? side : best))
    const { size, stretches } = inUse && !isFaster(fastest, inUse) ? inUse : fastest
    return { size, seconds: usual({ size, stretches }) }
  }
}

function isFaster(side: Side, inUse: Side): boolean {
  return usual(side) < FASTER[side.size > inUse.size ? 'larger' : 'smaller'] * usual(inUse)
}

/** Rounds in which a side was not faster than the size in use, which has none. */
function lostRounds(side: Side, inUse: Side): number {
  if (side === inUse) return 0
  return side.stretches.filter((seconds, round) => seconds >= inUse.stretches[round]).length
}

/** The mean of the stretches, without those in which something else must have happened. */
function usual({ stretches }: Side): number {
  const most = OUTLIER * upperMedian(stretches)
  const kept = stretches.filter(seconds => seconds <= most)
  return kept.reduce((sum, seconds) => sum + seconds, 0) / kept.length
}
