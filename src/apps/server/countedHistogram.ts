// A histogram whose reads were counted elsewhere, told to Prometheus as one of its own.
import { Histogram, type HistogramConfiguration } from 'prom-client'

export interface CountedBuckets {
  readonly labels?: Readonly<Record<string, string>>
  readonly counts: readonly number[] // of values up to the bound, and above the one before; one more: above the last
  readonly bounds: readonly number[]
  readonly sum: number
}

export class CountedHistogram extends Histogram {
  constructor(
    private readonly about: HistogramConfiguration<string>,
    private readonly read: () => readonly CountedBuckets[],
  ) {
    super(about)
  }

  /** What the registry asks for. */
  async getForPromString() {
    const { name, help } = this.about
    return { name, help, type: 'histogram', aggregator: 'sum', values: this.read().flatMap(each => values(name, each)) }
  }
}

function values(name: string, { labels = {}, counts, bounds, sum }: CountedBuckets) {
  let below = 0
  const bucket = (le: number | string) => ({ metricName: `${name}_bucket`, labels: { ...labels, le }, value: below })
  const buckets = bounds.map((bound, i) => {
    below += counts[i] ?? 0
    return bucket(bound)
  })
  below += counts[bounds.length] ?? 0
  return [
    ...buckets,
    bucket('+Inf'),
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: below },
  ]
}
