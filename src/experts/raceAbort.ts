// For those who wait for what cannot be stopped: they stop waiting.

/** What the promise gives, or the signal's reason as soon as that aborts; what comes of the promise then is nobody's business. */
export async function raceAbort<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (signal === undefined) return await promise
  let stop = () => {}
  const aborted = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason)
  })
  promise.catch(() => {})
  signal.addEventListener('abort', stop)
  try {
    signal.throwIfAborted()
    return await Promise.race([promise, aborted])
  } finally {
    signal.removeEventListener('abort', stop)
  }
}
