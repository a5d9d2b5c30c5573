// What a reader thread does all its life: take the next entry, read it into shared memory, answer. The same on every
// platform; `read` is the platform's. Transient faults are retried here, a bounded number of times; what remains is
// recorded in the entry for the asker to report.
import { now } from '../../base/now.js'
import { ReadTries } from '../../files/readRetries.js'
import type { ReadFailure, ReadRequest, ReadRing } from './readRing.js'

/** Reads up to `target.length` bytes of a file from `position`; returns how many came, 0 at the end of the file. */
export type ReadBytes = (file: number, target: Uint8Array, position: number) => number

/** Whether what was read is what it should be. */
export type CheckBytes = (request: ReadRequest) => boolean

export interface ReaderRole {
  readonly index: number
  /** Whether this reader takes prefetches too. Some do not, so that a demand never waits for all readers. */
  readonly takesAhead: boolean
}

export function serveReads(
  ring: ReadRing,
  role: ReaderRole,
  banks: readonly SharedArrayBuffer[],
  read: ReadBytes,
  check: CheckBytes | null = null,
  answered?: () => void,
): void {
  while (!ring.stopped) {
    const seen = ring.submissions(role.takesAhead)
    const entry = ring.takeEntry(role.takesAhead)
    if (entry < 0) {
      if (!ring.stopped) ring.waitForWork(seen, role.takesAhead)
      continue
    }
    serve(ring, role.index, entry, banks, read, check)
    answered?.()
  }
}

function serve(
  ring: ReadRing,
  reader: number,
  entry: number,
  banks: readonly SharedArrayBuffer[],
  read: ReadBytes,
  check: CheckBytes | null,
): void {
  const request = ring.request(entry)
  const { file, offset, size, bank, target } = request
  const began = now()
  ring.readBegins(began)
  let failure: ReadFailure | undefined
  let got = 0
  const tries = new ReadTries()
  for (;;) {
    try {
      // A read may return less than asked for without an error; go on from there.
      for (;;) {
        const came = read(file, new Uint8Array(banks[bank], target + got, size - got), offset + got)
        got += came
        if (got === size || came === 0) break
      }
      failure = got < size ? { code: '', got } : undefined
      // A file that is just being written is as bad as one that fails to be read: it may be better in a moment.
      if (!failure && check !== null && !check(request)) failure = { code: 'CHECKSUM', got }
    } catch (error) {
      failure = { code: (error as { code?: string }).code ?? 'UNKNOWN', got }
    }
    const pauseMs = failure ? tries.failed() : null
    if (pauseMs === null) break
    sleep(pauseMs)
    ring.countRetry(reader)
    got = 0 // what came before a fault is not trusted
  }
  ring.readEnds(entry, reader, failure ? 0 : size, began, now(), failure)
}

function sleep(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}
