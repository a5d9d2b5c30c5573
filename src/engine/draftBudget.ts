// What trying guesses may cost where they do not pay: a share of all tokens, and a little to begin with. Counted in tokens: a round that
// took as long as three without guesses and gave one token has lost two. However bad guesses are, no more is lost than that, and
// what the first round of all takes. Code that is compiled while it runs has a share of its own, of the time that has passed: what compiling
// takes does not depend on how long tokens take.

const SHARE = 0.01 // of tokens
const TO_BEGIN_WITH = 2 // tokens
const FOR_HOPE = 1.5 // tokens more, where guesses had bad luck so far and may still pay
const COLD_SHARE = 0.015 // of seconds, for rounds whose code is being compiled
const COLD_SAVED = { least: 0.05, most: 0.1 } // seconds, before such rounds begin: a dozen of them on a small model
const MOST_COLD = 0.05 // seconds that one of them loses: the system has put aside what takes longer
const MOST_SAVED = 8 // tokens: a trial after a long pause must not be felt in the answer that it meets
export const HEAD_COST = 0.04 // tokens, of a small model: what keeping the head up to date takes of a step without guesses

export class DraftBudget {
  private allowed = TO_BEGIN_WITH
  private lost = 0
  private coldSeconds = 0 // saved

  roundDone(tokens: number, seconds: number): void {
    this.allowed += SHARE * tokens
    this.coldSeconds = Math.min(COLD_SAVED.most, this.coldSeconds + COLD_SHARE * seconds)
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

  /** Whether rounds may run whose code is being compiled, or one more of them. */
  affordsCold(isUnderWay: boolean): boolean {
    return isUnderWay ? this.coldSeconds > 0 : this.coldSeconds >= COLD_SAVED.least
  }

  /** Such a round has lost so much time. */
  coldRound(seconds: number): void {
    this.coldSeconds -= Math.min(MOST_COLD, Math.max(0, seconds))
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
