// How many tokens to guess ahead of each step: what pays, by how long rounds take with 0 to 3 guesses and how often guesses
// come true. A round is drafting and the step that checks. Other numbers than the best are tried now and then, since texts,
// lengths and caches change. Pure: knows no clock, no model.
import { MOST_GUESSES } from '../compute/backend.js'
import { median } from '../experts/median.js'

export type Drafts = 'auto' | 0 | 1 | 2 | 3

export interface DraftRound {
  readonly guesses: number
  readonly right: number // of them, from the first on
  readonly seconds: number
}

/** Counters of a model, for `model.stats()`. */
export interface DraftStats {
  readonly guesses: number
  readonly accepted: number
  readonly rounds: number // with guesses
  readonly now: number // guesses per round that pay best
  readonly reason: string // in a few words
}

const RECENT = 9 // rounds by whose median a number of guesses is judged
const WARM_UP = 3 // rounds with each number before one is chosen
const PROBE_EVERY = 48
const PROBE_ROUNDS = 5
const FORGET = 0.03 // of what is known about a position, with each guess there
const MARGIN = 1.03 // another number must be so much better to take over

export class DraftGovernor {
  private readonly times: number[][] = Array.from({ length: MOST_GUESSES + 1 }, () => [])
  private readonly rates = new Float64Array(MOST_GUESSES).fill(0.7) // guess i is right when those before it are
  private best = 1
  private rounds = 0
  private guesses = 0
  private accepted = 0
  private guessed = 0 // rounds with guesses
  private probe: { count: number; left: number } | null = null
  private probed = 0

  constructor(readonly choice: Drafts) {}

  /** Guesses for the next round, which can have so many at most. */
  next(most: number): number {
    if (this.choice !== 'auto') return Math.min(this.choice, most)
    const untried = this.times.findIndex(times => times.length < WARM_UP)
    if (untried >= 0 && untried <= most) return untried
    if (this.probe !== null && this.probe.count <= most) return this.probe.count
    return this.best <= most ? this.best : this.bestUpTo(most)
  }

  roundDone({ guesses, right, seconds }: DraftRound): void {
    this.rounds++
    this.guesses += guesses
    this.accepted += right
    if (guesses > 0) this.guessed++
    for (let i = 0; i < guesses && i <= right; i++) this.rates[i] += FORGET * ((i < right ? 1 : 0) - this.rates[i])
    const times = this.times[guesses]
    times.push(seconds)
    if (times.length > RECENT) times.shift()
    if (this.choice === 'auto') this.decide(guesses)
  }

  get stats(): DraftStats {
    const { guesses, accepted, guessed: rounds } = this
    const now = this.choice === 'auto' ? this.best : this.choice
    return { guesses, accepted, rounds, now, reason: this.reason(now) }
  }

  private reason(now: number): string {
    if (this.choice !== 'auto') return 'as asked for'
    if (this.times.some(times => times.length < WARM_UP)) return 'not measured yet'
    const gain = (this.speed(now) / this.speed(0) - 1) * 100
    return now > 0 ? `${gain.toFixed(0)}% faster than without` : 'guesses do not pay here'
  }

  private decide(guesses: number): void {
    if (this.times.some(times => times.length < WARM_UP)) return
    const better = this.bestUpTo(MOST_GUESSES)
    if (this.speed(better) > this.speed(this.best) * MARGIN) this.best = better
    if (this.probe !== null) {
      if (guesses !== this.probe.count || --this.probe.left > 0) return
      // What was measured before, perhaps while all was cold, counts no more.
      this.times[guesses] = this.times[guesses].slice(-PROBE_ROUNDS)
      this.probe = null
    } else if (this.rounds % PROBE_EVERY === 0) {
      // All others in turn, none most often: whether to guess at all matters most.
      const turns = [0, 1, 0, 2, 0, 3].filter(count => count !== this.best)
      this.probe = { count: turns[this.probed++ % turns.length], left: PROBE_ROUNDS }
    }
  }

  private bestUpTo(most: number): number {
    let best = 0
    for (let count = 1; count <= most; count++) if (this.speed(count) > this.speed(best)) best = count
    return best
  }

  /** Tokens per second that rounds with so many guesses give. */
  private speed(count: number): number {
    let tokens = 1
    let all = 1
    for (let i = 0; i < count; i++) {
      all *= this.rates[i]
      tokens += all
    }
    return tokens / median(this.times[count])
  }
}
