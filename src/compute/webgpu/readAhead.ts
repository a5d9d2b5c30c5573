// Reads experts of the layers ahead by what their routers would choose now, as far as such guesses have come true of
// late. Keeps what was guessed for each layer until that layer's choice is known. Moves no bytes itself.
import { GuessTrust } from '../../experts/guessTrust.js'
import type { ExpertSlots } from './expertSlots.js'

interface Guess {
  readonly distance: number
  readonly rank: number
  readonly expert: number
}

export class ReadAhead {
  readonly trust: GuessTrust
  readonly #slots: ExpertSlots
  readonly #layers: number
  readonly #k: number
  readonly #open: Guess[][] // [layers], guesses of experts that were not in a slot

  constructor(
    slots: ExpertSlots,
    layers: number,
    k: number,
    /** Layers ahead that guesses are made for, at most. */
    readonly distances: number,
    least: number,
  ) {
    this.#slots = slots
    this.#layers = layers
    this.#k = k
    this.#open = Array.from({ length: layers }, () => [])
    this.trust = new GuessTrust(distances, k, least)
  }

  /** What the routers of the layers after `layer` choose on its hidden state: [distances][tokens, K], best first. */
  guess(layer: number, choices: readonly Uint32Array[]): void {
    for (const [i, choice] of choices.entries()) {
      const distance = i + 1
      const target = layer + distance
      if (target >= this.#layers) return
      for (const [at, expert] of choice.entries()) {
        const rank = at % this.#k
        if (this.#slots.has(target, expert)) continue
        this.#open[target].push({ distance, rank, expert })
        if (this.trust.trusts(distance, rank)) this.#slots.prefetch(target, expert)
      }
    }
  }

  /** The layer's choice is known. */
  judge(layer: number, chosen: ReadonlySet<number>): void {
    for (const { distance, rank, expert } of this.#open[layer].splice(0)) {
      this.trust.observe(distance, rank, chosen.has(expert))
    }
  }

  /** A step begins: guesses of one that failed are forgotten. */
  reset(): void {
    for (const guesses of this.#open) guesses.length = 0
  }
}
