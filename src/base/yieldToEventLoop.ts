// Lets the event loop run during long work on the thread that it runs on.

const YIELD_AFTER_MS = 8 // not measured

/** Resolves after every event that is ready now. Timers would wait for 1 to 4 ms. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise(resolve => {
    if (typeof setImmediate === 'function') {
      setImmediate(resolve)
      return
    }
    const { port1, port2 } = new MessageChannel()
    port1.onmessage = () => {
      port1.close()
      resolve()
    }
    port2.postMessage(null)
  })
}

export class Breather {
  private last = performance.now()

  /** Call often: yields if the last time is some milliseconds ago. */
  async maybeYield(): Promise<void> {
    if (performance.now() - this.last < YIELD_AFTER_MS) return
    await yieldToEventLoop()
    this.last = performance.now()
  }
}
