// Seconds of rounds of one kind that follow each other. The first ones after rounds of another kind do not count: what was done ahead
// for those is thrown away in them, and a GPU works ahead of the host only when it has seen some rounds of a kind.

const SETTLING = { without: 5, guessing: 3 } // rounds

export class SteadyRounds {
  readonly seconds: number[] = []
  private settling: number

  /** Of so many guesses each; the last `most` are kept. */
  constructor(
    private readonly guesses: number,
    private readonly most: number,
  ) {
    this.settling = this.settlingRounds
  }

  add(seconds: number): void {
    if (this.settling > 0) this.settling--
    else this.seconds.push(seconds)
    if (this.seconds.length > this.most) this.seconds.shift()
  }

  /** Rounds to come that do not count. */
  get unsettled(): number {
    return this.settling
  }

  /** Rounds to come until all are there. */
  get missing(): number {
    return this.settling + this.most - this.seconds.length
  }

  /** Something else came in between. */
  unsettle(): void {
    this.settling = this.settlingRounds
  }

  /** As new. */
  restart(): void {
    this.seconds.length = 0
    this.unsettle()
  }

  private get settlingRounds(): number {
    return this.guesses === 0 ? SETTLING.without : SETTLING.guessing
  }
}
