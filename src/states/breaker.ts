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

  failed(): void {
    this.pauseMs = Math.min(LONGEST_MS, this.pauseMs === 0 ? FIRST_MS : this.pauseMs * 2)
    this.closedUntil = this.now() + this.pauseMs
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
      this.failed()
    } finally {
      this.probing = false
    }
  }
}
