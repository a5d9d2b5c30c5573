// Keeps work away from a store that does not answer. After a failure nobody asks it for a while, each time longer; then one
// question is asked beside the answers, and only when that is answered do others ask again. Pure: the clock is given.

const FIRST_MS = 500
const LONGEST_MS = 30_000

export class Breaker {
  private closedUntil = 0
  private pauseMs = 0
  private probing = false

  constructor(private readonly now: () => number = () => performance.now()) {}

  /** Nobody is to ask. */
  get isOpen(): boolean {
    return this.pauseMs > 0
  }

  /** Where ten asked at once and nobody was answered, that is one failure: only the question after a pause makes it longer. */
  failed(): void {
    if (!this.isOpen) this.pause(FIRST_MS)
  }

  succeeded(): void {
    this.pauseMs = 0
  }

  /** Whether work may go to the store. Where it may not, and the pause is over, `probe` is tried beside it. */
  allows(probe: () => Promise<unknown>): boolean {
    if (!this.isOpen) return true
    if (!this.probing && this.now() >= this.closedUntil) void this.try(probe)
    return false
  }

  private async try(probe: () => Promise<unknown>): Promise<void> {
    this.probing = true
    try {
      await probe()
      this.succeeded()
    } catch {
      this.pause(Math.min(LONGEST_MS, this.pauseMs * 2))
    } finally {
      this.probing = false
    }
  }

  private pause(ms: number): void {
    this.pauseMs = ms
    this.closedUntil = this.now() + ms
  }
}
