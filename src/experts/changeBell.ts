// For those who wait by promises until something has changed, and then look for themselves.

export class ChangeBell {
  private readonly waiting = new Set<() => void>()

  ring(): void {
    for (const wake of [...this.waiting]) wake()
  }

  /** Resolves at the next ring, or when the signal aborts, which the caller looks for before and after. */
  next(signal?: AbortSignal): Promise<void> {
    return new Promise(resolve => {
      const wake = () => {
        this.waiting.delete(wake)
        signal?.removeEventListener('abort', wake)
        resolve()
      }
      this.waiting.add(wake)
      signal?.addEventListener('abort', wake)
    })
  }
}
