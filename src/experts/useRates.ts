// How often each expert is used, per step, as far as its past tells: the one estimate that all decisions about keeping,
// evicting and promoting share. Uses are counted twice, with counts that fade quickly (what this sentence is about) and slowly
// (what this text is about), and the rate is a mix of the two. On top comes a share of the mean rate of all experts: an
// expert that was not seen of late is used now and then nevertheless, and few sightings say little. Counts belong to
// experts, not to places: an expert that was evicted comes back with its past. Pure and deterministic.

export interface RateTuning {
  readonly shortHalfLife: number // steps
  readonly longHalfLife: number
  readonly shortShare: number // of the mix
  readonly meanShare: number // of the mean rate, added to every expert's
}

/** Chosen by replaying traces (docs/performance-log.md). */
export const defaultTuning: RateTuning = { shortHalfLife: 4, longHalfLife: 64, shortShare: 0.3, meanShare: 2 }

const LARGEST_UNIT = 2 ** 400

/** A faded count per expert. Instead of fading all counts at each step, a use counts for more at each step. */
class FadingCounts {
  readonly counts: Float64Array // [layers * experts], in growing units
  readonly perUse: number // what a use now adds to a rate
  sum = 0
  private unit = 1 // of a use now
  private readonly growth: number

  constructor(experts: number, halfLife: number) {
    this.counts = new Float64Array(experts)
    this.growth = 2 ** (1 / halfLife)
    this.perUse = 1 - 1 / this.growth
  }

  tick(): void {
    this.unit *= this.growth
    if (this.unit < LARGEST_UNIT) return
    for (let i = 0; i < this.counts.length; i++) this.counts[i] /= this.unit
    this.sum /= this.unit
    this.unit = 1
  }

  used(key: number): void {
    this.counts[key] += this.unit
    this.sum += this.unit
  }

  rate(key: number): number {
    return (this.perUse * this.counts[key]) / this.unit
  }

  get meanRate(): number {
    return (this.perUse * this.sum) / this.unit / this.counts.length
  }
}

export class UseRates {
  step = 0
  private readonly short: FadingCounts
  private readonly long: FadingCounts
  private base = 0 // what every expert has

  constructor(
    experts: number, // of all layers
    private readonly tuning: RateTuning = defaultTuning,
  ) {
    this.short = new FadingCounts(experts, tuning.shortHalfLife)
    this.long = new FadingCounts(experts, tuning.longHalfLife)
    this.tick()
  }

  /** A step begins: one token, or a chunk of them. Until the next one, only those rates change that are used. */
  tick(): void {
    this.step++
    this.short.tick()
    this.long.tick()
    this.base = this.tuning.meanShare * this.long.meanRate
  }

  used(key: number): void {
    this.short.used(key)
    this.long.used(key)
  }

  /** Uses per step, estimated. */
  rate(key: number): number {
    const { shortShare } = this.tuning
    return this.base + shortShare * this.short.rate(key) + (1 - shortShare) * this.long.rate(key)
  }

  /** Uses per step over a longer time, as they were counted. */
  steadyRate(key: number): number {
    return this.long.rate(key)
  }

  /** Used within the last few steps. */
  isFresh(key: number): boolean {
    return this.short.rate(key) > this.short.perUse / 2
  }

  /** Steps over which the past counts for `steadyRate`, and so over which it tells the future. */
  get memorySteps(): number {
    return this.tuning.longHalfLife / Math.LN2
  }

  /** What a use now adds to `steadyRate`. */
  get steadyPerUse(): number {
    return this.long.perUse
  }

  /** What a use now adds to `rate`. */
  get perUse(): number {
    const { shortShare } = this.tuning
    return shortShare * this.short.perUse + (1 - shortShare) * this.long.perUse
  }
}
