// A promise that is waited for no longer than so long. What does not listen to its signal is left behind.

export class TooSlowError extends Error {
  constructor(ms: number) {
    super(`no answer within ${Math.round(ms)} ms`)
  }
}

/** Runs `work` with a signal that is aborted after `ms` or with `outer`; rejects then, whatever `work` does. */
export async function withTimeLimit<T>(
  ms: number,
  work: (signal: AbortSignal) => Promise<T>,
  outer?: AbortSignal,
): Promise<T> {
  outer?.throwIfAborted()
  const controller = new AbortController()
  let leave = () => {}
  let timer: ReturnType<typeof setTimeout> | undefined
  const limit = new Promise<never>((_, reject) => {
    const stop = (reason: unknown) => {
      reject(reason)
      controller.abort(reason)
    }
    timer = setTimeout(() => stop(new TooSlowError(ms)), ms)
    leave = () => stop(outer?.reason)
    outer?.addEventListener('abort', leave, { once: true })
  })
  try {
    const result = work(controller.signal)
    result.catch(() => {}) // also where nobody waits for it any more
    return await Promise.race([result, limit])
  } finally {
    clearTimeout(timer)
    outer?.removeEventListener('abort', leave)
  }
}

/** Rejects when the signal is aborted, whatever `work` does. */
export async function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted()
  work.catch(() => {})
  let leave = () => {}
  const aborted = new Promise<never>((_, reject) => {
    leave = () => reject(signal.reason)
    signal.addEventListener('abort', leave, { once: true })
  })
  try {
    return await Promise.race([work, aborted])
  } finally {
    signal.removeEventListener('abort', leave)
  }
}
