// Long work on the thread that serves is done in parts, and between them whatever waits gets its turn.

/** Resolves when the events that wait have been handled. */
export function otherWork(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve))
}
