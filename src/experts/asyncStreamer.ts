// The streamer for those who wait by promises: the webgpu and the reference backend. What to read, hand out and call off is
// decided by the core (streamerCore.ts); this waits for it, with an eye on aborts and on whatever ends all waiting. The
// blocking flavour is expertStreamer.ts.
//
//   await streamer.hold(layer, experts)          // all of them in slots at once
//   … use them …
//   streamer.letGo()                             // always, also after an error or an abort
//
//   for await (const slots of streamer.waves(layer, experts)) … use them …
import type { StreamerCore } from './streamerCore.js'

export class AsyncStreamer {
  private readonly bell = new ChangeBell()
  private over: Error | null = null

  constructor(readonly core: StreamerCore) {}

  /** A read has ended, and the core knows. */
  changed(): void {
    this.bell.ring()
  }

  /** Nobody waits any longer, now or later: whoever does gets this error. */
  end(error: Error): void {
    this.over ??= error
    this.bell.ring()
  }

  get isOver(): boolean {
    return this.over !== null
  }

  /** Brings all of a layer's wanted experts into slots at once, and keeps them there until `letGo`. */
  async hold(layer: number, wanted: Iterable<number>, signal?: AbortSignal): Promise<void> {
    this.core.request(layer, [...wanted])
    await this.until(() => this.core.isComplete, signal)
  }

  /** What was held may go: whoever uses it has done, or nobody will use it. */
  letGo(): void {
    this.core.release()
    this.bell.ring()
  }

  /**
   * Brings a layer's wanted experts into slots and hands out the slots, in waves where they are more than the slots: those
   * that are there first, while the others are read. A wave stays until the next is asked for. `asTheyCome`: many small
   * waves, else as few as can be.
   */
  async *waves(
    layer: number,
    wanted: readonly number[],
    options: { readonly signal?: AbortSignal; readonly asTheyCome?: boolean } = {},
  ): AsyncGenerator<readonly number[]> {
    this.core.request(layer, wanted)
    yield* this.handOut(options)
  }

  /** The same for a request that was made already. */
  async *handOut(
    options: { readonly signal?: AbortSignal; readonly asTheyCome?: boolean } = {},
  ): AsyncGenerator<readonly number[]> {
    const { core } = this
    try {
      for (let takesFew = true; ; takesFew = options.asTheyCome === true) {
        const hasWave = () => (takesFew && core.hasReady) || (!core.isWaiting && (core.hasReady || core.isComplete))
        await this.until(hasWave, options.signal)
        if (!core.hasReady) return
        yield core.take(core.cache.slotsPerPool)
        core.giveBack()
        core.goOn()
      }
    } finally {
      this.letGo()
    }
  }

  /** Waits for what is not a request: `isDone` is looked at after every change. */
  async settled(isDone: () => boolean): Promise<void> {
    while (!isDone()) await this.bell.next()
  }

  /** Waits for the present request. Where it fails, is aborted or is let go, that is thrown and the request is over. */
  private async until(isDone: () => boolean, signal?: AbortSignal): Promise<void> {
    const { core } = this
    const { turn } = core
    const began = performance.now()
    let waited = false
    try {
      for (;;) {
        if (this.over !== null) throw this.over
        signal?.throwIfAborted()
        if (core.turn !== turn) throw new Error('the request for experts was let go')
        if (core.failure !== null) throw core.failure
        if (isDone()) return
        if (core.isStuck) throw new Error('no expert slot can be emptied')
        waited = true
        await this.bell.next(signal)
      }
    } catch (error) {
      if (core.turn === turn) this.letGo()
      throw error
    } finally {
      if (waited) core.stallSeconds += (performance.now() - began) / 1000
    }
  }
}

/** For those who wait by promises until something has changed, and then look for themselves. */
class ChangeBell {
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
