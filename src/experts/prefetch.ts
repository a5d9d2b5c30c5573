// Reads experts before their layer asks for them, by guesses, as far as guesses of that kind have come true of late. Those
// that come true less often wait, and are read when the disk would have nothing to do. Keeps what was guessed for each
// layer until that layer's choice is known. Where guesses come from is the backend's business: the routers of the layers
// ahead, run early, or what the token before chose. Moves no bytes itself.
import { GuessTrust } from './guessTrust.js'

const LITTLE = 4 // experts under way: with fewer the disk is soon idle

export interface GuessedSlots {
  /** Whether the expert is in a slot, or on its way into one. */
  has(layer: number, expert: number): boolean
  /** Begins to read an expert, unless too much is under way. */
  prefetch(layer: number, expert: number): void
  readonly reading: number // experts under way
}

interface ReadAheadOptions {
  readonly layers: number
  readonly experts: number // per layer
  readonly k: number
  readonly sources: number // of guesses
  readonly least: number // share of a kind of guess that must come true
  readonly leastSpare: number // the same for reads by a disk that is idle otherwise
}

interface Guess {
  readonly source: number
  readonly rank: number
  readonly expert: number
}

export class ReadAhead {
  readonly trust: GuessTrust
  private readonly open: Guess[][] // [layers], guesses of experts that were not in a slot
  private readonly spare = new Map<number, number>() // layer * experts + expert → the share that comes true

  constructor(
    private readonly slots: GuessedSlots,
    private readonly options: ReadAheadOptions,
  ) {
    this.open = Array.from({ length: options.layers }, () => [])
    this.trust = new GuessTrust(options.sources, options.k, options.least)
  }

  get sources(): number {
    return this.options.sources
  }

  /** What a source thinks that a layer will choose: [tokens, K], each token's best first. */
  guess(layer: number, source: number, choice: ArrayLike<number>): void {
    const { k } = this.options
    for (let rank = 0; rank < k; rank++) {
      for (let at = rank; at < choice.length; at += k) this.consider(layer, { source, rank, expert: choice[at] })
    }
  }

  /** Whether something is to be learned from the layer's choice. */
  isOpen(layer: number): boolean {
    return this.open[layer].length > 0
  }

  /** The layer's choice is known. */
  judge(layer: number, chosen: ReadonlySet<number>): void {
    for (const { source, rank, expert } of this.open[layer].splice(0)) {
      this.trust.observe(source, rank, chosen.has(expert))
    }
    const end = (layer + 1) * this.options.experts
    for (const key of this.spare.keys()) if (key < end) this.spare.delete(key)
  }

  /** A step has ended, perhaps before its last layer. */
  forget(): void {
    for (const guesses of this.open) guesses.length = 0
    this.spare.clear()
  }

  /** Reads the best of what is not trusted while little else is under way. */
  readSpare(): void {
    const { experts } = this.options
    while (this.spare.size > 0 && this.slots.reading < LITTLE) {
      const [best] = [...this.spare].reduce((a, b) => (b[1] > a[1] ? b : a))
      this.spare.delete(best)
      this.slots.prefetch(Math.floor(best / experts), best % experts)
    }
  }

  private consider(layer: number, guess: Guess): void {
    const { source, rank, expert } = guess
    if (this.slots.has(layer, expert)) return
    this.open[layer].push(guess)
    if (this.trust.trusts(source, rank)) {
      this.slots.prefetch(layer, expert)
      return
    }
    const rate = this.trust.rate(source, rank)
    if (rate >= this.options.leastSpare) this.spare.set(layer * this.options.experts + expert, rate)
  }
}
