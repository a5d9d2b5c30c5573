// How many requests may be in the house at once: those that run and those that wait in the session's queue. Beyond
// that a request is turned away at once, with a time after which to try again.
import { ApiError } from './apiError.js'

/** The places that one request has. */
export interface Places {
  /** Takes as many as it needs now, or throws and has what it had. None gives all back. */
  resize(places: number): void
}

export class Admission {
  private inside = 0

  constructor(
    private readonly parallel: number,
    private readonly maxQueue: number,
  ) {}

  get active(): number {
    return this.inside
  }

  /** Takes `places` or throws. */
  enter(places = 1): Places {
    let own = 0
    const resize = (wanted: number) => {
      const others = this.inside - own
      const room = this.parallel + this.maxQueue
      // One that asks for more than there is at all gets in when nobody else is there.
      if (wanted > own && others + wanted > room && others > 0) throw this.full(room)
      this.inside += wanted - own
      own = wanted
    }
    resize(places)
    return { resize }
  }

  private full(room: number): ApiError {
    const retryAfterSeconds = Math.min(60, 1 + Math.ceil(this.inside / this.parallel))
    const message = `${this.inside} requests are being answered or waiting, ${room} at most`
    return new ApiError('rate_limit', message, { retryAfterSeconds, code: 'queue_full' })
  }
}
