// What readers of experts count, the same wherever they read: reads, bytes, time, retries and a histogram of latencies. The
// counts lie in an array of numbers, so that each reader thread can write its own into shared memory.

/** Of one reader or of all together. */
export interface ReadTotals {
  reads: number
  bytes: number
  seconds: number // summed over reads
  busySeconds: number // wall time with at least one read under way
  retries: number
  latency: number[] // by buckets, see latencyBoundMs
}

const LATENCY_BUCKETS = 20

/** Milliseconds that the reads of a bucket took at most: whoever shows the histogram asks here what its steps are. */
export function latencyBoundMs(bucket: number): number {
  return 2 ** bucket / 8
}

const I_READS = 0
const I_BYTES = 1
const I_SECONDS = 2
const I_RETRIES = 3
const I_LATENCY = 4

/** The counts of one reader, who alone writes them. */
export class ReadCounters {
  static readonly length = I_LATENCY + LATENCY_BUCKETS

  constructor(private readonly counts: Float64Array = new Float64Array(ReadCounters.length)) {}

  /** A read has ended, and has brought so many bytes. */
  ended(bytes: number, ms: number): void {
    this.counts[I_READS]++
    this.counts[I_BYTES] += bytes
    this.counts[I_SECONDS] += ms / 1000
    this.counts[I_LATENCY + latencyBucket(ms)]++
  }

  retried(): void {
    this.counts[I_RETRIES]++
  }

  addTo(totals: ReadTotals): void {
    totals.reads += this.counts[I_READS]
    totals.bytes += this.counts[I_BYTES]
    totals.seconds += this.counts[I_SECONDS]
    totals.retries += this.counts[I_RETRIES]
    for (let i = 0; i < LATENCY_BUCKETS; i++) totals.latency[i] += this.counts[I_LATENCY + i]
  }
}

/** The counts of reads that begin and end on one thread, several at a time. */
export class ReadMeter {
  private readonly counters = new ReadCounters()
  private underWay = 0
  private busySince = 0 // ms
  private busySeconds = 0

  get totals(): ReadTotals {
    const totals = noReads(this.busySeconds)
    this.counters.addTo(totals)
    return totals
  }

  /** Measures one read: `work` says how many bytes it brings, and counts its retries. */
  async measure(bytes: number, work: (onRetry: () => void) => Promise<void>): Promise<void> {
    const began = performance.now()
    if (this.underWay++ === 0) this.busySince = began
    let brought = 0
    try {
      await work(() => this.counters.retried())
      brought = bytes
    } finally {
      const now = performance.now()
      if (--this.underWay === 0) this.busySeconds += (now - this.busySince) / 1000
      this.counters.ended(brought, now - began)
    }
  }
}

/** Of two kinds of readers. */
export function addReads(a: ReadTotals, b: ReadTotals): ReadTotals {
  return {
    reads: a.reads + b.reads,
    bytes: a.bytes + b.bytes,
    seconds: a.seconds + b.seconds,
    busySeconds: Math.max(a.busySeconds, b.busySeconds), // at least: nobody looks at both
    retries: a.retries + b.retries,
    latency: a.latency.map((count, i) => count + b.latency[i]),
  }
}

export function noReads(busySeconds = 0): ReadTotals {
  return {
    reads: 0,
    bytes: 0,
    seconds: 0,
    busySeconds,
    retries: 0,
    latency: new Array<number>(LATENCY_BUCKETS).fill(0),
  }
}

function latencyBucket(ms: number): number {
  return Math.max(0, Math.min(LATENCY_BUCKETS - 1, Math.floor(Math.log2(Math.max(ms, 1e-3) * 8)) + 1))
}
