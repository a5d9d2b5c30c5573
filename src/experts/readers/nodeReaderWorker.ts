// A reader thread in Node: positional reads of files that the main thread opened, straight into shared memory.
import { closeSync, readSync } from 'node:fs'
import { parentPort, workerData } from 'node:worker_threads'
import { openRegularSync } from '../../base/regularFile.js'
import type { WasmMemory } from '../../base/wasmTypes.js'
import { type BlockChecksums, blocksOf } from '../../files/packed/blockChecksums.js'
import { hashesOver } from '../../files/packed/blockHash.js'
import { type CheckBytes, type ReadBytes, type ReaderRole, serveReads } from './readerLoop.js'
import { withFaults } from './readFaults.js'
import { ReadRing } from './readRing.js'

export interface ReaderWorkerData {
  readonly ring: SharedArrayBuffer
  readonly role: ReaderRole
  readonly banks: readonly WasmMemory[]
  readonly descriptors: readonly number[] // of the files; descriptors belong to the process, in Node and Bun
  /** In Deno they belong to the thread that opened them: files that this one has to open, and how. */
  readonly own: { readonly files: readonly string[]; readonly flags: number } | null
  readonly checksums: BlockChecksums | null // of the files; reads are whole blocks then
  readonly faults?: SharedArrayBuffer
  /** Call the main thread when a read has ended and it is not looking, for those who cannot block. */
  readonly calls: boolean
}

const data = workerData as ReaderWorkerData
const ring = new ReadRing(data.ring)
const opened: number[] = []
const read: ReadBytes = (file, target, position) => {
  if (data.own !== null) opened[file] ??= openRegularSync(data.own.files[file], data.own.flags)
  const descriptor = data.own === null ? data.descriptors[file] : opened[file]
  return readSync(descriptor, target, 0, target.length, position)
}
/** Each block is hashed where it lies, while other threads read and compute. */
function blockCheck(checksums: BlockChecksums): CheckBytes {
  const hashes = data.banks.map(hashesOver)
  return ({ file, offset, size, bank, target }) => {
    for (const block of blocksOf(checksums, file, offset, size)) {
      if (hashes[bank](target + block.at - offset, block.size) !== block.sum) return false
    }
    return true
  }
}

const answered = () => {
  if (ring.isAsleep) parentPort?.postMessage(null)
}
serveReads(
  ring,
  data.role,
  data.banks.map(memory => memory.buffer as unknown as SharedArrayBuffer),
  data.faults ? withFaults(read, data.faults) : read,
  data.checksums && blockCheck(data.checksums),
  data.calls ? answered : undefined,
)
for (const descriptor of opened) if (descriptor !== undefined) closeSync(descriptor)
