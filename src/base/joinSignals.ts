// One signal out of several. (`AbortSignal.any` is newer than Node 20.0, and keeps listeners on signals that live long.)

export interface JoinedSignal {
  readonly signal: AbortSignal
  /** Lets go of the joined signals; must be called. */
  release(): void
}

/** Aborts, with the same reason, when the first of `signals` does. */
export function joinSignals(...signals: readonly AbortSignal[]): JoinedSignal {
  const controller = new AbortController()
  const removers: (() => void)[] = []
  for (const signal of signals) {
    const listener = () => controller.abort(signal.reason)
    if (signal.aborted) listener()
    else {
      signal.addEventListener('abort', listener, { once: true })
      removers.push(() => signal.removeEventListener('abort', listener))
    }
  }
  return {
    signal: controller.signal,
    release: () => {
      for (const remove of removers) remove()
    },
  }
}
