// How many tokens of a prompt go into one step. Experts are loaded once a step, so that more tokens take less time each; but an
// abort waits for the end of a step, and so do the tokens of others. So steps begin short and become longer where the GPU turns
// out to be fast. Results do not depend on it. Pure.

const LONGEST_MS = 300

export class ChunkPace {
  private now: number

  /** `least` and `most`: of a step; `most` is `least` times a power of two. */
  constructor(
    readonly least: number,
    private readonly most: number,
  ) {
    this.now = least
  }

  get tokens(): number {
    return this.now
  }

  /** A step of a prompt has ended. One that is shorter than the least says nothing about long ones. */
  took(tokens: number, ms: number): void {
    if (tokens < this.least) return
    let next = this.most
    while (next > this.least && (next / tokens) * ms > LONGEST_MS) next /= 2
    this.now = next
  }
}
