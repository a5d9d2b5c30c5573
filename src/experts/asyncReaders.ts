// A reader for places where bytes come by promises: the event loop of one thread takes reads from the ring, several at a
// time, and answers them. The asker is a compute thread that blocks (shared memory), or this very thread between two
// layers (plain memory). Caching is the sources' business.
import { ChecksumError } from '../errors.js'
import type { ByteSource } from '../storage/byteSource.js'
import { readPatiently } from '../storage/readTries.js'
import { ReadRing } from './readRing.js'

export interface AsyncReaderOptions {
  readonly files: readonly ByteSource[] // one per layer
  readonly memories: readonly WebAssembly.Memory[] // that reads go into
  readonly entries: number // reads that can be asked for at once
  readonly shared: boolean
}

export interface AsyncReaders {
  readonly ring: ArrayBufferLike
  /** Takes up what was asked for. Resolves when the next read has ended. */
  serve(): Promise<void>
  close(): Promise<void>
}

/** More than browsers open connections to one server: the queue is theirs and never empty. */
const IN_FLIGHT = 8

/** Of those, reads ahead: a demand always finds a connection that is free. */
const AHEAD_IN_FLIGHT = 4

export function startAsyncReaders(options: AsyncReaderOptions): AsyncReaders {
  const { files, memories, shared } = options
  const ring = new ReadRing(ReadRing.create(options.entries, 1, shared))
  const reading = new Set<Promise<void>>()
  const closing = new AbortController()
  let ahead = 0 // of `reading`

  const takeUp = () => {
    while (reading.size < IN_FLIGHT && !ring.stopped) {
      const demand = ring.takeEntry(false)
      const isAhead = demand < 0
      if (isAhead && ahead === AHEAD_IN_FLIGHT) return
      const entry = isAhead ? ring.takeEntry(true) : demand
      if (entry < 0) return
      if (isAhead) ahead++
      const read = readEntry(entry).finally(() => {
        reading.delete(read)
        if (isAhead) ahead--
        takeUp()
      })
      reading.add(read)
    }
  }

  const readEntry = async (entry: number) => {
    const { file, offset, size, bank, target } = ring.request(entry)
    const began = now()
    ring.readBegins(began)
    try {
      // A memory that is not shared moves when it grows, perhaps before the bytes are here.
      const view = () => new Uint8Array(memories[bank].buffer, target, size)
      const bytes = shared ? view() : new Uint8Array(size)
      await readPatiently(files[file], offset, bytes, { signal: closing.signal, onRetry: () => ring.countRetry(0) })
      if (!shared) view().set(bytes)
      ring.readEnds(entry, 0, size, began, now())
    } catch (error) {
      ring.readEnds(entry, 0, 0, began, now(), { code: failureCode(error), got: 0 })
    }
  }

  // One wait at a time: a wake-up goes to one waiter, and must not go to one that was forgotten.
  const listen = async () => {
    while (!ring.stopped) {
      const seen = ring.submissions(true)
      takeUp()
      await ring.workArrives(seen)
    }
  }
  const listening = shared ? listen() : Promise.resolve()

  return {
    ring: ring.buffer,
    async serve() {
      takeUp()
      await (reading.size > 0 ? Promise.race(reading) : new Promise(resolve => setTimeout(resolve)))
    },
    async close() {
      ring.stop()
      closing.abort()
      await listening
      await Promise.all(reading)
    },
  }
}

/** A word for the ring, whose texts `failureText` has. */
function failureCode(error: unknown): string {
  if (error instanceof ChecksumError) return 'CHECKSUM'
  const { code, status, name } = error as { code?: unknown; status?: unknown; name?: string }
  if (typeof status === 'number') return `HTTP_${status}`
  return typeof code === 'string' ? code : (name ?? 'UNKNOWN')
}

// The same clock on every thread.
function now(): number {
  return performance.timeOrigin + performance.now()
}
