// One piece of work at a time, in the order in which it was asked for.

export class Turns {
  private last: Promise<unknown> = Promise.resolve()

  /** Runs `work` when all that was asked for before has ended, well or not. */
  take<T>(work: () => Promise<T>): Promise<T> {
    const result = this.last.then(work)
    this.last = result.catch(() => {})
    return result
  }

  /** Resolves when all that was asked for so far has ended. */
  async ended(): Promise<void> {
    await this.last
  }
}
