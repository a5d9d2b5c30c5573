// What trying guesses may cost where they do not pay: a share of all tokens, and a little to begin with. Counted in tokens: a round that
// took as long as three without guesses and gave one token has lost two. However bad guesses are, no more is lost than that, and
// what the first round of all takes.

const SHARE = 0.01 // of tokens
const TO_BEGIN_WITH = 2 // tokens
const FOR_HOPE = 1.5 // tokens more, where guesses had bad luck so far and may still pay
const MOST_SAVED = 8 // tokens: a trial after a long pause must not be felt in the answer that it meets
export const HEAD_COST = 0.04 // tokens, of a small model: what keeping the head up to date takes of a step without guesses

export class DraftBudget {
  private allowed = TO_BEGIN_WITH
  private lost = 0

  /** `coldSeconds`: what may be lost beside all else while code is being compiled. */
  constructor(private coldSeconds: number) {}

  tokensMade(tokens: number): void {
    this.allowed += SHARE * tokens
  }

  /** A comparison begins. */
  trialBegins(): void {
    this.allowed = Math.min(this.allowed, this.lost + MOST_SAVED)
  }

  /** Whether so much more may be lost, for guesses that may pay. */
  affords(loss: number, mayPay: boolean): boolean {
    return this.lost + loss <= this.allowed + (mayPay ? FOR_HOPE : 0)
  }

  /** Whether a trial may begin that may lose so much, beside other losses that are not counted yet. What costs too much is cut short. */
  affordsTrial(loss: number, others: number): boolean {
    return this.affords(Math.min(MOST_SAVED, loss) + others, false)
  }

  /** Whether nothing more may be lost to code that is being compiled. */
  get isColdUp(): boolean {
    return this.coldSeconds <= 0
  }

  /** A round with guesses was slow because its code is new. */
  coldRound(lostSeconds: number, tokenSeconds: number): void {
    const free = Math.min(this.coldSeconds, Math.max(0, lostSeconds))
    this.coldSeconds -= free
    this.trialEnded(Math.min(MOST_SAVED, (lostSeconds - free) / tokenSeconds)) // the system may have put it aside
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
