// What a round with so many guesses takes, in rounds without: as it was measured, and else on a line between the numbers that were.
// Beyond them a guess is taken to cost half of what those before it did, because a round has a part that its first guess pays for: what is
// told of a number that was not measured is rather too low, and worth a trial.
import { MOST_GUESSES } from '../backends/backend.js'

const FURTHER = 0.5 // of what guesses cost that are known

export class DraftCosts {
  private readonly known = new Map<number, number>([[0, 1]]) // by guesses
  private readonly measured = new Set<number>() // of them, those that are not by a first glance alone

  isMeasured(guesses: number): boolean {
    return this.measured.has(guesses)
  }

  set(guesses: number, cost: number): void {
    this.known.set(guesses, cost)
    this.measured.add(guesses)
  }

  /** By the first rounds. */
  glance(guesses: number, cost: number): void {
    if (!this.isMeasured(guesses)) this.known.set(guesses, cost)
  }

  of(guesses: number): number {
    const { known } = this
    const exact = known.get(guesses)
    if (exact !== undefined) return exact
    let below = guesses - 1
    while (!known.has(below)) below--
    let above = guesses + 1
    while (above <= MOST_GUESSES && !known.has(above)) above++
    const start = known.get(below) as number
    const end = known.get(above)
    if (end !== undefined) return start + ((end - start) * (guesses - below)) / (above - below)
    return below === 0 ? 1 : start + (FURTHER * (start - 1) * (guesses - below)) / below
  }
}
