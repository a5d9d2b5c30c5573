// A reader thread in Node: positional reads of files that the main thread opened, straight into shared memory.
import { readSync } from 'node:fs'
import { parentPort, workerData } from 'node:worker_threads'
import { type ReadBytes, type ReaderRole, serveReads } from './readerLoop.js'
import { withFaults } from './readFaults.js'
import { ReadRing } from './readRing.js'

export interface ReaderThreadData {
  readonly ring: SharedArrayBuffer
  readonly role: ReaderRole
  readonly banks: readonly SharedArrayBuffer[]
  readonly descriptors: readonly number[] // of the files; descriptors belong to the process
  readonly faults?: SharedArrayBuffer
  /** Call the main thread when a read has ended and it is not looking, for those who cannot block. */
  readonly calls: boolean
}

const data = workerData as ReaderThreadData
const ring = new ReadRing(data.ring)
const read: ReadBytes = (file, target, position) => readSync(data.descriptors[file], target, 0, target.length, position)
const answered = () => {
  if (ring.isAsleep) parentPort?.postMessage(null)
}
serveReads(
  ring,
  data.role,
  data.banks,
  data.faults ? withFaults(read, data.faults) : read,
  data.calls ? answered : undefined,
)
