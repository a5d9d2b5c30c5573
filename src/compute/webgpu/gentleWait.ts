// Waiting for the GPU in Node without asking it all the time. Dawn asks in every turn of the event loop whether a buffer can be
// read, and each time leaves a kilobyte to the garbage collector, which then stops everything for 40 ms in every second of
// rounds with guesses. So while nothing can have come yet, turns are made longer: what is submitted takes about as long as its
// like took of late, and for most of that time the thread sleeps a little in each turn. Others who wait for the event loop wait
// a tenth of a millisecond longer then. Where nobody asks (browsers), `sleep` is null, and nothing happens here.

const MOST_SLEEP_MS = 0.1 // in one turn
const SURE = 0.75 // of the shortest time of late: until then nothing comes
const REMEMBERED = 8 // times, of each kind

interface Pending {
  readonly due: number // when it may have come
}

export class GentleWait {
  private readonly times = new Map<string, number[]>() // the last ones, in ms
  private readonly pending = new Set<Pending>()
  private turns = false // the loop below is on

  constructor(
    private readonly sleep: ((ms: number) => void) | null,
    private readonly now: () => number = () => performance.now(),
    private readonly nextTurn: (work: () => void) => void = work => setImmediate(work),
  ) {}

  /** `reading`: comes back from the GPU, being submitted now. `kind`: what takes as long has the same. */
  until<T>(kind: string, reading: Promise<T>): Promise<T> {
    if (this.sleep === null) return reading
    const began = this.now()
    const past = this.times.get(kind)
    const own = { due: began + (past === undefined ? 0 : SURE * Math.min(...past)) }
    this.pending.add(own)
    this.begin()
    const ended = () => {
      this.pending.delete(own)
      this.begin()
    }
    reading.then(() => {
      this.times.set(kind, [...(this.times.get(kind) ?? []).slice(1 - REMEMBERED), this.now() - began])
      ended()
    }, ended)
    return reading
  }

  private begin(): void {
    if (this.turns || this.left() <= 0) return
    this.turns = true
    this.nextTurn(this.turn)
  }

  private readonly turn = (): void => {
    const left = this.left()
    this.turns = left > 0
    if (!this.turns) return
    this.sleep?.(Math.min(MOST_SLEEP_MS, left))
    this.nextTurn(this.turn)
  }

  /** Until something may have come, in ms; 0 where nothing is waited for. */
  private left(): number {
    let due = Number.POSITIVE_INFINITY
    for (const each of this.pending) due = Math.min(due, each.due)
    return this.pending.size === 0 ? 0 : due - this.now()
  }
}
