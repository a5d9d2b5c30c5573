// A histogram whose reads were counted elsewhere, told to Prometheus as one of its own.
import { Histogram, type HistogramConfiguration } from 'prom-client'

export interface CountedBuckets {
  readonly counts: readonly number[] // of values below the bound, and not below the one before
  readonly bounds: readonly number[]
  readonly sum: number
}

export class CountedHistogram extends Histogram {
  constructor(
    private readonly about: HistogramConfiguration<string>,
    private readonly read: () => CountedBuckets,
  ) {
    super(about)
  }

  /** What the registry asks for. */
  async getForPromString() {
    const { name, help } = this.about
    const { counts, bounds, sum } = this.read()
    let below = 0
    const bucket = (le: number | string, value: number) => ({ metricName: `${name}_bucket`, labels: { le }, value })
    const values = bounds.map((bound, i) => bucket(bound, (below += counts[i] ?? 0)))
    return {
      name,
      help,
      type: 'histogram',
      aggregator: 'sum',
      values: [
        ...values,
        bucket('+Inf', below),
        { metricName: `${name}_sum`, labels: {}, value: sum },
        { metricName: `${name}_count`, labels: {}, value: below },
      ],
    }
  }
}
