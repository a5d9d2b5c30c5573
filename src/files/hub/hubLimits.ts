// How long and how much a hub may send before it is left. A hub that is slow is waited for; one that is silent, that
// trickles, or that never ends is not.

export interface HubLimits {
  /** A connection is dropped that brings fewer than `leastBytes` in `stallMs`, the start of its answer included. */
  readonly stallMs: number
  readonly leastBytes: number
  /** Times that one question to the hub is asked, after connections that failed. */
  readonly attempts: number
  /** An answer that says which files there are: its bytes, and the time until it is whole. */
  readonly answerBytes: number
  readonly answerMs: number
  /** A list of files: its pages, its files, and the time for all of it. */
  readonly pages: number
  readonly files: number
  readonly listMs: number
  /** Times that one question is sent on to another address. */
  readonly redirects: number
  readonly fileBytes: number // of the largest file
}

export const HUB_LIMITS: HubLimits = {
  stallMs: 30_000,
  leastBytes: 16 * 1024,
  attempts: 5,
  answerBytes: 32 * 2 ** 20,
  answerMs: 120_000,
  pages: 100,
  files: 100_000,
  listMs: 600_000,
  redirects: 10,
  fileBytes: 2 ** 40,
}

/** Aborts `signal` when too little comes, or where `wholeMs` is given, when not all has come by then. */
export class StallGuard {
  private readonly controller = new AbortController()
  private readonly stall: NodeJS.Timeout
  private readonly whole: NodeJS.Timeout | null
  private bytes = 0 // since the timer was set

  constructor(
    private readonly limits: Pick<HubLimits, 'stallMs' | 'leastBytes'>,
    wholeMs: number | null = null,
  ) {
    const abort = (why: string) => this.controller.abort(new Error(why))
    this.stall = setTimeout(() => {
      abort(`${this.bytes === 0 ? 'nothing' : `only ${this.bytes} bytes`} came for ${limits.stallMs} ms`)
    }, limits.stallMs)
    this.whole = wholeMs === null ? null : setTimeout(() => abort(`was not whole after ${wholeMs} ms`), wholeMs)
  }

  get signal(): AbortSignal {
    return this.controller.signal
  }

  got(bytes: number): void {
    this.bytes += bytes
    if (this.bytes < this.limits.leastBytes) return
    this.bytes = 0
    this.stall.refresh()
  }

  /** Ends a connection that is still open, too. */
  end(): void {
    clearTimeout(this.stall)
    if (this.whole !== null) clearTimeout(this.whole)
    this.controller.abort()
  }
}
