// How often a read is tried, wherever bytes are read that a computation cannot do without: a bounded number of times with a
// pause in between, which gets over what passes. Who reads keeps the count; how to pause is his business. Networks want another
// patience, since what came before a break is kept and pauses are long: rangeFetcher.ts for models that stay on a server,
// files/hub/downloadFile.ts for ranges on their way to a file, files/hub/hubClient.ts for questions to a hub.
import type { ByteSource } from './source.js'

const PAUSES_MS = [2, 10]

/** The tries of one read. */
export class ReadTries {
  private failures = 0

  /** A try has failed: how long to wait before the next one, in ms; null: that was the last. */
  failed(): number | null {
    return PAUSES_MS[this.failures++] ?? null
  }
}

/** Reads from a source that does not try again by itself. `onRetry`: before each try but the first. */
export async function readPatiently(
  source: ByteSource,
  offset: number,
  target: Uint8Array,
  options: { readonly signal?: AbortSignal; readonly onRetry?: () => void } = {},
): Promise<void> {
  const { signal, onRetry } = options
  const tries = new ReadTries()
  for (;;) {
    signal?.throwIfAborted()
    try {
      await source.read(offset, target, signal)
      return
    } catch (error) {
      signal?.throwIfAborted()
      const pauseMs = mayPass(error) ? tries.failed() : null
      if (pauseMs === null) throw error
      await new Promise(resolve => setTimeout(resolve, pauseMs))
      onRetry?.()
    }
  }
}

/** Other errors are of sources that have tried again themselves, or know better. */
function mayPass(error: unknown): boolean {
  return (error as { code?: unknown }).code === 'READ_FAILED'
}
