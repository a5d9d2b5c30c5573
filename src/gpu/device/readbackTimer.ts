// Waiting for the GPU in Node without asking it all the time. While a buffer is to be read, Dawn asks in every turn of the event
// loop whether it can be, and each time leaves a kilobyte to the garbage collector, which then stops everything for 50 ms in
// every second. What is submitted takes about as long as its like took of late, so Dawn hears of a reading only when most of
// that time is over, and until then the thread sleeps a little in each turn. Others who wait for the event loop wait a tenth of a
// millisecond longer then. Where nobody asks (browsers), `sleep` is null, and readings begin at once.

const MOST_SLEEP_MS = 0.1 // in one turn
const SURE = 0.9 // of the shortest time of late: until then nothing comes
const REMEMBERED = 8 // times, of each kind
const KNOWN = 3 // times that must be known: the first ones take longer
const THERE = 0.03 // of its time: what comes sooner after it was asked for was there before, nobody knows how long

export class GentleWait {
  private readonly times = new Map<string, number[]>() // the last ones, in ms
  private last: Promise<unknown> = Promise.resolve()
  private endedAt = 0 // when the last one came

  constructor(
    private readonly sleep: ((ms: number) => void) | null,
    private readonly now: () => number = () => performance.now(),
    private readonly nextTurn: (work: () => void) => void = work => setImmediate(work),
  ) {}

  /**
   * What `read` brings of what was submitted just now; it is called when that may have come. The GPU does one thing after the other,
   * so readings come in the order of these calls. `kind`: what takes as long has the same.
   */
  until<T>(kind: string, read: () => Promise<T>): Promise<T> {
    if (this.sleep === null) return read()
    const submittedAt = this.now()
    const reading = this.last.then(() => this.readLater(kind, submittedAt, read))
    this.last = reading.catch(() => {})
    return reading
  }

  /** When nothing is waited for any more. */
  async ended(): Promise<void> {
    await this.last
  }

  private async readLater<T>(kind: string, submittedAt: number, read: () => Promise<T>): Promise<T> {
    const began = Math.max(submittedAt, this.endedAt)
    const past = this.times.get(kind) ?? []
    const sleeps = past.length >= KNOWN
    if (sleeps) await this.sleepUntil(began + SURE * Math.min(...past))
    const askedAt = this.now()
    try {
      const result = await read()
      const took = this.now() - began
      const wasThere = sleeps && this.now() - askedAt < THERE * took
      this.times.set(kind, [...past.slice(1 - REMEMBERED), wasThere ? (askedAt - began) / 2 : took])
      return result
    } finally {
      this.endedAt = this.now()
    }
  }

  private sleepUntil(due: number): Promise<void> {
    return new Promise(resolve => {
      const turn = () => {
        const left = due - this.now()
        if (left <= 0) return resolve()
        this.sleep?.(Math.min(MOST_SLEEP_MS, left))
        this.nextTurn(turn)
      }
      this.nextTurn(turn)
    })
  }
}
