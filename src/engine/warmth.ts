// Whether code that is compiled while it runs has come to its speed: rounds of one kind get no shorter any more. A compiler works in steps,
// so that times stay as they are for a while and fall again: where one is at work, some seconds must have passed as well, unless rounds take
// so long that what compiling adds is little.

const FALL = 0.95 // of the shortest before: still getting faster
const LONG_ROUND = 0.01 // seconds
const GIVEN_UP = 8 // times as many rounds as are enough: it will not get warmer

export class Warmth {
  isWarm: boolean
  private shortest = Number.POSITIVE_INFINITY // of all but the last ones
  private readonly last: number[] = [] // seconds
  private rounds = 0
  private passed = 0 // seconds

  /** Warm is who has got no faster in so many rounds, and not before so many seconds of them. */
  constructor(
    private readonly enough: number,
    private readonly seconds = 0,
  ) {
    this.isWarm = enough === 0
  }

  /** Whether no round was so short that what compiling adds to it counts. */
  get areLong(): boolean {
    return Math.min(this.shortest, ...this.last) > LONG_ROUND
  }

  /** A round took so long. */
  roundDone(seconds: number): void {
    if (this.isWarm) return
    const { last } = this
    last.push(seconds)
    if (last.length > this.enough) this.shortest = Math.min(this.shortest, last.shift() as number)
    this.passed += seconds
    const isSteady = Math.min(...last) > FALL * this.shortest || ++this.rounds >= GIVEN_UP * this.enough
    this.isWarm = isSteady && (this.passed >= this.seconds || this.areLong)
  }
}
