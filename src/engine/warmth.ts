// Whether code that is compiled while it runs has come to its speed: rounds of one kind get no shorter any more.

const FALL = 0.95 // of the shortest before: still getting faster
const GIVEN_UP = 48 // rounds: it will not get warmer

export class Warmth {
  private shortest = Number.POSITIVE_INFINITY // of all but the last ones
  private readonly last: number[] = [] // seconds
  private rounds = 0
  isWarm = false

  /** Warm is who has got no faster in so many rounds. */
  constructor(private readonly enough: number) {}

  /** A round took so long. */
  roundDone(seconds: number): void {
    if (this.isWarm) return
    const { last } = this
    last.push(seconds)
    if (last.length > this.enough) this.shortest = Math.min(this.shortest, last.shift() as number)
    this.isWarm = Math.min(...last) > FALL * this.shortest || ++this.rounds >= GIVEN_UP
  }
}
