// Experts from files in Node: the reader threads of src/experts read into shared memory, from where a record is copied
// into the mapped buffer that uploads it.
import { copyShared } from '../../../base/sharedMemory.js'
import { ExpertReaderPool } from '../../../experts/readers/nodeReaderPool.js'
import { readersFor, readMemory } from '../../../experts/readers/nodeReaders.js'
import { expertBlockBytes } from '../../../files/packed/blockChecksums.js'
import type { ExpertFiles } from '../../../files/packed/packedModel.js'
import type { BackendOptions } from '../../backend.js'
import type { ExpertReader } from './expertReader.js'

// A disk gives all it has to eight reads or so, and nearly all to four. A token misses two or three experts per layer, so
// an expert is read in pieces, each of a size at which a disk is still fast, and copied out while the others are read. They
// are the blocks of its checksums. Not all threads read ahead, and none begins to while somebody waits: a read under way
// takes its share from the others.
const READERS = 16
const READERS_AHEAD = 8

/** Threads that read experts for a GPU. */
export function gpuReaders(expertSize: number, experts: number): number {
  return expertBlockBytes(expertSize) < expertSize ? READERS : readersFor(experts * expertSize)
}

export function nodeExpertReader(
  experts: ExpertFiles,
  files: readonly string[],
  options: BackendOptions,
  records: number,
): ExpertReader {
  const { expertSize } = experts.layout
  const { checksums } = experts
  const bank = readMemory(records * expertSize)
  const bytes = new Uint8Array(bank.buffer)
  const free = Array.from({ length: records }, (_, i) => i)
  const waiting: ((record: number) => void)[] = []
  const pieces = cutRecord(expertSize, checksums?.blockBytes ?? expertBlockBytes(expertSize))
  const pool = new ExpertReaderPool({
    files,
    expertSize,
    banks: [bank],
    checksums,
    slotBytes: 0, // the slots are on the GPU
    depth: records * pieces.length,
    yieldsToDemands: true,
    ...(pieces.length > 1 ? { threads: READERS, demandThreads: READERS - READERS_AHEAD } : {}),
    reads: options.expertReads,
    faults: options.readFaults,
    onNotice: options.onNotice,
  })
  return {
    get totals() {
      return pool.totals
    },
    isLocal: true,
    async read(layer, expert, target, priority) {
      const record = free.pop() ?? (await new Promise<number>(resolve => waiting.push(resolve)))
      const offset = expert * expertSize
      const reads = pieces.map(async ({ at, size }) => {
        const from = record * expertSize + at
        await pool.read(layer, offset + at, size, 0, from, priority)
        copyShared(bytes.subarray(from, from + size), target.subarray(at, at + size))
      })
      // The record is free only when no piece of it is under way, be it that one has failed.
      const failed = (await Promise.allSettled(reads)).find(result => result.status === 'rejected')
      const next = waiting.shift()
      if (next !== undefined) next(record)
      else free.push(record)
      if (failed !== undefined) throw failed.reason
    },
    promote(layer, expert) {
      for (const { at } of pieces) pool.promote(layer, expert * expertSize + at)
    },
    close: () => pool.close(),
  }
}

function cutRecord(size: number, step: number): { at: number; size: number }[] {
  const pieces: { at: number; size: number }[] = []
  for (let at = 0; at < size; at += step) pieces.push({ at, size: Math.min(step, size - at) })
  return pieces
}
