// Limits the bytes of request bodies in memory. A body takes memory by the length that it announces
// before it is read, waits up to a limit if none is left, and keeps it until its request ends.
// Small bodies never wait, and ordinary ones never wait for large ones: a few huge or slow uploads
// do not delay other requests.
import { ApiError } from './apiError.js'

const SMALL_BODY = 64 * 2 ** 10
const LEAST_LANE = 64 * 2 ** 20

export interface BodyRoomLimits {
  readonly maxBytes: number // of one body
  readonly waitMs: number
}

export class BodyRoom {
  /** A body of unknown length begins as a small one. */
  readonly smallBytes: number
  private readonly ordinaryBytes: number
  private readonly ordinary: Lane
  private readonly large: Lane

  constructor(private readonly limits: BodyRoomLimits) {
    const { maxBytes, waitMs } = limits
    const laneBytes = Math.max(LEAST_LANE, 2 * maxBytes)
    this.smallBytes = Math.min(SMALL_BODY, maxBytes)
    this.ordinaryBytes = maxBytes / 8
    this.ordinary = new Lane(laneBytes, waitMs)
    this.large = new Lane(laneBytes, waitMs)
  }

  /** Bytes that are spoken for, small bodies left out. */
  get bytes(): number {
    return this.ordinary.taken + this.large.taken
  }

  /** What to take for a body of unknown length that has grown to `bytes`: all that bodies of its kind may have. */
  sizeFor(bytes: number): number {
    return bytes <= this.ordinaryBytes ? this.ordinaryBytes : this.limits.maxBytes
  }

  /** Waits for room. Returns what gives it back, once. */
  async enter(bytes: number, signal: AbortSignal): Promise<() => void> {
    if (bytes <= this.smallBytes) return () => {}
    return await (bytes <= this.ordinaryBytes ? this.ordinary : this.large).enter(bytes, signal)
  }
}

interface Waiting {
  readonly bytes: number
  readonly admit: () => void
}

/** First come, first served. */
class Lane {
  taken = 0
  private readonly queue: Waiting[] = []

  constructor(
    private readonly bytes: number,
    private readonly waitMs: number,
  ) {}

  async enter(bytes: number, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted()
    if (this.queue.length > 0 || this.taken + bytes > this.bytes) await this.wait(bytes, signal)
    else this.taken += bytes
    let isGiven = false
    return () => {
      if (isGiven) return
      isGiven = true
      this.taken -= bytes
      this.admitNext()
    }
  }

  private wait(bytes: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer)
        signal.removeEventListener('abort', abort)
        const at = this.queue.indexOf(waiting)
        if (at >= 0) this.queue.splice(at, 1)
      }
      const abort = () => {
        leave()
        this.admitNext() // others may have waited for this one alone
        reject(signal.reason)
      }
      const giveUp = () => {
        leave()
        this.admitNext()
        const message = `other large requests are being read, and there is no room for ${bytes} bytes more`
        reject(new ApiError('overloaded', message, { code: 'body_room_full', retryAfterSeconds: 5 }))
      }
      const waiting: Waiting = {
        bytes,
        admit: () => {
          leave()
          resolve()
        },
      }
      const timer = setTimeout(giveUp, this.waitMs)
      signal.addEventListener('abort', abort, { once: true })
      this.queue.push(waiting)
    })
  }

  private admitNext(): void {
    for (let first = this.queue.at(0); first !== undefined; first = this.queue.at(0)) {
      if (this.taken + first.bytes > this.bytes) return
      this.taken += first.bytes
      first.admit()
    }
  }
}
