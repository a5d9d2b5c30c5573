// What trying guesses may cost where they do not pay: a share of all tokens, and a little to begin with. Counted in tokens: a round that
// took as long as three without guesses and gave one token has lost two. However bad guesses are, no more is lost than that, and
// what the first round of all takes.

const SHARE = 0.01 // of tokens
const TO_BEGIN_WITH = 1 // tokens
const MOST_SAVED = 4 // tokens: a trial after a long pause must not be felt in the answer that it meets
const UNKNOWN_LOSS = 0.5 // of a round that was never tried, in tokens
export const HEAD_COST = 0.04 // tokens, of a small model: what keeping the head up to date takes of a step without guesses

export class DraftBudget {
  private allowed = TO_BEGIN_WITH
  private lost = 0
  private readonly lossOf = new Map<number, number>() // of a round, by its guesses

  tokensMade(tokens: number): void {
    this.allowed += SHARE * tokens
  }

  /** A comparison begins. */
  trialBegins(): void {
    this.allowed = Math.min(this.allowed, this.lost + MOST_SAVED)
  }

  /** Whether another round with so many guesses may be tried, beside other losses that are not counted yet. */
  affords(guesses: number, others: number): boolean {
    const loss = this.lossOf.get(guesses) ?? UNKNOWN_LOSS
    return this.lost + others + loss <= this.allowed
  }

  /** What a round with so many guesses loses, by all that is known. */
  roundLoses(guesses: number, tokens: number): void {
    this.lossOf.set(guesses, Math.max(0, tokens))
  }

  /** A comparison has ended. What it gained makes up for what was lost, and is no allowance for later. */
  trialEnded(lost: number): void {
    this.lost = Math.max(0, this.lost + lost)
  }

  /** A round without guesses has kept the head up to date. */
  headKept(): void {
    this.lost += HEAD_COST
  }
}
