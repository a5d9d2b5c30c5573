// Lets the event loop run during long computation on the main thread, without giving up time when it ran just now.

const PAUSE_AFTER_MS = 8

/** Resolves once everything that is ready now has had its turn. Timers would wait for a millisecond or four. */
export function nextTurn(): Promise<void> {
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

  /** Call often: gives way only where the last pause is some milliseconds ago. */
  async pause(): Promise<void> {
    if (performance.now() - this.last < PAUSE_AFTER_MS) return
    await nextTurn()
    this.last = performance.now()
  }
}
