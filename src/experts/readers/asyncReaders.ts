// A reader for places where bytes come by promises: the event loop of one thread takes reads from the ring, several at a
// time, and answers them. Where the source fetches neighbours in one go, those that wait are taken up together, as one
// run. The asker is a compute thread that blocks (shared memory), or this very thread between two layers (plain memory).
// Caching is the sources' business.
import { ChecksumError } from '../../base/errors.js'
import { now } from '../../base/now.js'
import type { WasmMemory } from '../../base/wasmTypes.js'
import { readPatiently } from '../../files/readRetries.js'
import type { ByteSource } from '../../files/source.js'
import { type ReadRequest, ReadRing } from './readRing.js'

export interface AsyncReaderOptions {
  readonly files: readonly ByteSource[] // one per layer
  readonly memories: readonly WasmMemory[] // that reads go into
  readonly entries: number // reads that can be asked for at once
  readonly shared: boolean
}

export interface AsyncReaders {
  readonly ring: ArrayBufferLike
  /** Takes up what was asked for. Resolves when the next read has ended. */
  serve(): Promise<void>
  close(): Promise<void>
}

/** Runs: more than browsers open connections to one server, so that the queue is theirs and never empty. */
const IN_FLIGHT = 8

/** Of those, runs of reads ahead: a demand always finds a connection that is free. */
const AHEAD_IN_FLIGHT = 4

/** Of a run, the longest stretch of a file, and between two reads of it: the source may know better and divide it. */
const RUN_BYTES = 8 * 2 ** 20
const GAP_BYTES = 128 * 1024

type Place = Pick<ReadRequest, 'offset' | 'size'>

export function startAsyncReaders(options: AsyncReaderOptions): AsyncReaders {
  const { files, memories, shared } = options
  const ring = new ReadRing(ReadRing.create(options.entries, 1, shared))
  const reading = new Set<Promise<void>>()
  const closing = new AbortController()
  let runs = 0
  let runsAhead = 0 // of those

  const takeUp = () => {
    while (runs < IN_FLIGHT && !ring.stopped) {
      const demand = ring.takeEntry(false)
      const isAhead = demand < 0
      if (isAhead && runsAhead === AHEAD_IN_FLIGHT) return
      const entry = isAhead ? ring.takeEntry(true) : demand
      if (entry < 0) return
      runs++
      if (isAhead) runsAhead++
      const reads = [entry, ...neighbours(entry, isAhead)].map(startReading)
      void Promise.all(reads).then(() => {
        runs--
        if (isAhead) runsAhead--
        takeUp()
      })
    }
  }

  /** Takes up those of the same kind that can be had with it, whenever their turn would be. */
  const neighbours = (entry: number, isAhead: boolean): number[] => {
    const first = ring.request(entry)
    if (!files[first.file].joinsReads) return []
    const waiting = ring.queued(isAhead).map(each => ({ each, ...ring.request(each) }))
    return stretch(
      first,
      waiting.filter(({ file }) => file === first.file),
    )
      .map(({ each }) => each)
      .filter(each => ring.take(each))
  }

  const startReading = (entry: number): Promise<void> => {
    const read = readEntry(entry).finally(() => reading.delete(read))
    reading.add(read)
    return read
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

/** Of the reads that wait, those which make one stretch of a file with the first: upwards, then downwards. */
function stretch<T extends Place>(first: Place, waiting: readonly T[]): T[] {
  const sorted = waiting.toSorted((a, b) => a.offset - b.offset)
  const taken: T[] = []
  let begin = first.offset
  let end = first.offset + first.size
  for (const next of sorted) {
    if (next.offset < end) continue
    const nextEnd = next.offset + next.size
    if (next.offset - end > GAP_BYTES || nextEnd - begin > RUN_BYTES) break
    taken.push(next)
    end = nextEnd
  }
  for (const next of sorted.reverse()) {
    const nextEnd = next.offset + next.size
    if (nextEnd > begin) continue
    if (begin - nextEnd > GAP_BYTES || end - next.offset > RUN_BYTES) break
    taken.push(next)
    begin = next.offset
  }
  return taken
}

/** A word for the ring, whose texts `failureText` has. */
function failureCode(error: unknown): string {
  if (error instanceof ChecksumError) return 'CHECKSUM'
  const { code, status, name } = error as { code?: unknown; status?: unknown; name?: string }
  if (typeof status === 'number') return `HTTP_${status}`
  return typeof code === 'string' ? code : (name ?? 'UNKNOWN')
}
