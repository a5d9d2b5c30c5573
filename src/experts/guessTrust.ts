// Which guesses about coming layers are worth a read. A guess is of a kind: who made it (the router of a layer so many
// layers ahead, the token before), and at which rank it put the expert. For each kind the share that came true of late
// is known, also of guesses that nobody acted on, so a kind that becomes good is trusted again without a trial. Only
// guesses of experts that were not in memory count: the others are easy to guess and cost nothing. Pure.

const MEMORY = 64 // guesses of a kind that the estimate remembers, about
const FIRST_RATE = 0.75 // before anything was seen

export class GuessTrust {
  private readonly rates: Float64Array // [sources, ranks], the share that came true

  constructor(
    sources: number,
    private readonly ranks: number,
    /** The least share that must come true for a guess to be read. */
    private readonly least: number,
  ) {
    this.rates = new Float64Array(sources * ranks).fill(FIRST_RATE)
  }

  trusts(source: number, rank: number): boolean {
    return this.rate(source, rank) >= this.least
  }

  rate(source: number, rank: number): number {
    return this.rates[source * this.ranks + rank]
  }

  observe(source: number, rank: number, cameTrue: boolean): void {
    const at = source * this.ranks + rank
    this.rates[at] += ((cameTrue ? 1 : 0) - this.rates[at]) / MEMORY
  }
}
