// Memory, open handles and threads of a process, once a second, and whether they stay flat: the median of the last
// quarter of the time against that of the second, because the first is warming up. Also how long its main thread stood in
// line for a processor: on a machine with too much to do, that and not the program is slow. Linux alone tells these from
// outside.
import { readdirSync, readFileSync } from 'node:fs'
import { upperMedian } from '../../../dist/base/median.js'
import { processorWaitMs } from './processorWait.mjs'

const MIB = 2 ** 20
const LONG_SECONDS = 600
/**
 * What may be more at the end than in the second quarter: a share of it, and a little of its own. In a short run memory is
 * still on its way to what the largest bodies need, and a median is a matter of which of them came when: there it may grow
 * by `moreWhenShort`.
 */
const TOLERANCE = {
  memoryBytes: { share: 0.1, more: 32 * MIB, moreWhenShort: 300 * MIB },
  handles: { share: 0.1, more: 8 },
  threads: { share: 0, more: 2 },
}

export class Gauges {
  #samples = []
  #waits = [] // ms per sample
  #waitedBefore = null // ms, all in all
  #timer

  constructor(pid) {
    this.pid = pid
    if (process.platform !== 'linux') return
    this.#timer = setInterval(() => this.#sample(), 1000)
  }

  get last() {
    return this.#samples.at(-1) ?? null
  }

  stop() {
    clearInterval(this.#timer)
  }

  /** How long the main thread waited for a processor: the share of all the time, and the most in one second. */
  processorWait() {
    const total = this.#waits.reduce((sum, wait) => sum + wait, 0)
    return {
      share: total / (1000 * Math.max(1, this.#waits.length)),
      mostMsInASecond: Math.round(Math.max(0, ...this.#waits)),
    }
  }

  /** Per gauge the medians of the second and the last quarter, the peak, and whether it is flat. */
  summary() {
    const quarter = Math.floor(this.#samples.length / 4)
    const part = from => this.#samples.slice(from * quarter, (from + 1) * quarter)
    return Object.fromEntries(
      Object.entries(TOLERANCE).map(([name, { share, more, moreWhenShort = more }]) => {
        const room = this.#samples.length < LONG_SECONDS ? moreWhenShort : more
        const [second, last] = [part(1), part(3)].map(samples => upperMedian(samples.map(sample => sample[name])) ?? 0)
        const peak = Math.max(...this.#samples.map(sample => sample[name]))
        return [name, { second, last, peak, isFlat: quarter === 0 || last <= second * (1 + share) + room }]
      }),
    )
  }

  #sample() {
    try {
      const status = readFileSync(`/proc/${this.pid}/status`, 'utf8')
      const field = name => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1])
      const waited = processorWaitMs(this.pid)
      if (this.#waitedBefore !== null) this.#waits.push(waited - this.#waitedBefore)
      this.#waitedBefore = waited
      const handles = readdirSync(`/proc/${this.pid}/fd`).length
      this.#samples.push({ memoryBytes: field('VmRSS') * 1024, handles, threads: field('Threads') })
    } catch {} // it has ended; that is for others to notice
  }
}
