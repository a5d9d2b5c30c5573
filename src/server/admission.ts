// How many requests may be in the house at once: those that run and those that wait in the session's queue. Beyond
// that a request is turned away at once, with a time after which to try again.
import { ApiError } from './apiError.js'

export class Admission {
  private inside = 0

  constructor(
    private readonly parallel: number,
    private readonly maxQueue: number,
  ) {}

  get active(): number {
    return this.inside
  }

  /** Takes `places` or throws. Returns what gives them back, once. */
  enter(places = 1): () => void {
    const room = this.parallel + this.maxQueue
    if (this.inside + places > room && this.inside > 0) {
      const retryAfterSeconds = Math.min(60, 1 + Math.ceil(this.inside / this.parallel))
      throw new ApiError('rate_limit', `${this.inside} requests are being answered or waiting, ${room} at most`, {
        retryAfterSeconds,
        code: 'queue_full',
      })
    }
    this.inside += places
    let given = false
    return () => {
      if (given) return
      given = true
      this.inside -= places
    }
  }
}
