// Which guesses about the layers ahead are worth a read. A guess is of a kind: how many layers ahead it was made, and at
// which rank the router put the expert. For each kind the share that came true of late is known, also of guesses that
// nobody acted on, so a kind that becomes good is trusted again without a trial. Only guesses of experts that were not
// in memory count: the others are easy to guess and cost nothing. Pure.

const memory = 64 // guesses of a kind that the estimate remembers, about
const firstRate = 0.75 // before anything was seen

export class GuessTrust {
  private readonly rates: Float64Array // [distances, ranks], the share that came true

  constructor(
    distances: number,
    private readonly ranks: number,
    /** The least share that must come true for a guess to be read. */
    private readonly least: number,
  ) {
    this.rates = new Float64Array(distances * ranks).fill(firstRate)
  }

  /** `distance`: layers ahead, from 1. */
  trusts(distance: number, rank: number): boolean {
    return this.rate(distance, rank) >= this.least
  }

  rate(distance: number, rank: number): number {
    return this.rates[(distance - 1) * this.ranks + rank]
  }

  observe(distance: number, rank: number, cameTrue: boolean): void {
    const at = (distance - 1) * this.ranks + rank
    this.rates[at] += ((cameTrue ? 1 : 0) - this.rates[at]) / memory
  }
}
