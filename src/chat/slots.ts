// Lets a bounded number of requests run; the others wait in order, and may give up waiting.

export class Slots {
  taken = 0
  private readonly queue: (() => void)[] = []

  constructor(private readonly count: number) {}

  get waiting(): number {
    return this.queue.length
  }

  /** Resolves when a slot is the caller's, who must `give` it back. */
  async take(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    if (this.taken < this.count) {
      this.taken++
      return
    }
    await new Promise<void>((resolve, reject) => {
      const leave = () => {
        this.queue.splice(this.queue.indexOf(enter), 1)
        reject(signal.reason)
      }
      const enter = () => {
        signal.removeEventListener('abort', leave)
        resolve()
      }
      signal.addEventListener('abort', leave, { once: true })
      this.queue.push(enter)
    })
  }

  /** The slot goes to the first who waits. */
  give(): void {
    const next = this.queue.shift()
    if (next) next()
    else this.taken--
  }
}
