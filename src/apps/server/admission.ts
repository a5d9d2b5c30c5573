// Limits how many requests are active at once: those that run and those that wait in the session's
// queue. A request beyond the limit is refused at once, with a time after which to try again.
import { ApiError } from './apiError.js'

/** The permits of one request. */
export interface Permits {
  /** Takes or returns permits until the request has `permits`, or throws and changes nothing. */
  resize(permits: number): void
}

export class Admission {
  private taken = 0

  constructor(
    private readonly parallel: number,
    private readonly maxQueue: number,
  ) {}

  get active(): number {
    return this.taken
  }

  /** Takes one permit or throws. */
  enter(): Permits {
    let own = 0
    const resize = (wanted: number) => {
      const others = this.taken - own
      const limit = this.parallel + this.maxQueue
      // A request for more permits than exist is admitted when no other is active.
      if (wanted > own && others + wanted > limit && others > 0) throw this.full(limit)
      this.taken += wanted - own
      own = wanted
    }
    resize(1)
    return { resize }
  }

  private full(limit: number): ApiError {
    const retryAfterSeconds = Math.min(60, 1 + Math.ceil(this.taken / this.parallel))
    const message = `${this.taken} requests are being answered or waiting, ${limit} at most`
    return new ApiError('rate_limit', message, { retryAfterSeconds, code: 'queue_full' })
  }
}
