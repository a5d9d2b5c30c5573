// Reads experts of the layers ahead by what their routers would choose now, as far as such guesses have come true of
// late. Guesses that come true less often wait, and are read when the disk would have nothing to do. Keeps what was
// guessed for each layer until that layer's choice is known. Moves no bytes itself.
import { GuessTrust } from '../../experts/guessTrust.js'
import type { ExpertSlots } from './expertSlots.js'

const LITTLE = 4 // experts under way: with fewer the disk is soon idle

interface ReadAheadOptions {
  readonly layers: number
  readonly experts: number // per layer
  readonly k: number
  readonly distances: number // layers ahead that guesses are made for, at most
  readonly least: number // share of a kind of guess that must come true
  readonly leastSpare: number // the same for reads by a disk that is idle otherwise
}

/** What it needs of the slots. */
export type GuessSlots = Pick<ExpertSlots, 'has' | 'prefetch' | 'reading' | 'onRead'>

interface Guess {
  readonly distance: number
  readonly rank: number
  readonly expert: number
}

export class ReadAhead {
  readonly trust: GuessTrust
  readonly #slots: GuessSlots
  readonly #options: ReadAheadOptions
  readonly #open: Guess[][] // [layers], guesses of experts that were not in a slot
  readonly #spare = new Map<number, number>() // layer * experts + expert → the share that comes true

  constructor(slots: GuessSlots, options: ReadAheadOptions) {
    this.#slots = slots
    this.#options = options
    this.#open = Array.from({ length: options.layers }, () => [])
    this.trust = new GuessTrust(options.distances, options.k, options.least)
    slots.onRead = () => this.#readSpare()
  }

  get distances(): number {
    return this.#options.distances
  }

  /** What the routers of the layers after `layer` choose on its hidden state: [distances][tokens, K], best first. */
  guess(layer: number, choices: readonly Uint32Array[]): void {
    const { layers, k } = this.#options
    for (const [i, choice] of choices.entries()) {
      const distance = i + 1
      const target = layer + distance
      if (target >= layers) break
      for (const [at, expert] of choice.entries()) {
        const rank = at % k
        if (this.#slots.has(target, expert)) continue
        this.#open[target].push({ distance, rank, expert })
        if (this.trust.trusts(distance, rank)) this.#slots.prefetch(target, expert)
        else this.#keepSpare(target, expert, this.trust.rate(distance, rank))
      }
    }
    this.#readSpare()
  }

  /** The layer's choice is known. */
  judge(layer: number, chosen: ReadonlySet<number>): void {
    for (const { distance, rank, expert } of this.#open[layer].splice(0)) {
      this.trust.observe(distance, rank, chosen.has(expert))
    }
    const end = (layer + 1) * this.#options.experts
    for (const key of this.#spare.keys()) if (key < end) this.#spare.delete(key)
  }

  /** A step has ended, perhaps before its last layer. */
  forget(): void {
    for (const guesses of this.#open) guesses.length = 0
    this.#spare.clear()
  }

  #keepSpare(layer: number, expert: number, rate: number): void {
    if (rate >= this.#options.leastSpare) this.#spare.set(layer * this.#options.experts + expert, rate)
  }

  /** Reads the best of what is not trusted while little else is under way. */
  #readSpare(): void {
    const { experts } = this.#options
    while (this.#spare.size > 0 && this.#slots.reading < LITTLE) {
      const [best] = [...this.#spare].reduce((a, b) => (b[1] > a[1] ? b : a))
      this.#spare.delete(best)
      this.#slots.prefetch(Math.floor(best / experts), best % experts)
    }
  }
}
