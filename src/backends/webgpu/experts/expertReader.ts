// Reads experts from any byte source into memory that the upload uses. Where the bytes go after that is the caller's
// business.
import { ReadMeter, type ReadTotals } from '../../../experts/readers/readCounters.js'
import type { ReadPriority } from '../../../experts/readers/readRing.js'
import type { ExpertFiles } from '../../../files/packed/packedModel.js'
import { readPatiently } from '../../../files/readRetries.js'

export interface ExpertReader {
  /** Fills `target` with the expert's record; rejects after all retries. */
  read(layer: number, expert: number, target: Uint8Array, priority: ReadPriority): Promise<void>
  /** An expert that is being read ahead is wanted now. */
  promote(layer: number, expert: number): void
  /** Reading ahead costs nothing but the disk's time: files, not a network. */
  readonly isLocal: boolean
  readonly totals: ReadTotals
  /** Reads that have not begun fail, and sources that can are told to stop. */
  close(): Promise<void>
}

export function sourceExpertReader(experts: ExpertFiles): ExpertReader {
  const { expertSize } = experts.layout
  const closing = new AbortController()
  const { signal } = closing
  const meter = new ReadMeter()
  return {
    get totals() {
      return meter.totals
    },
    isLocal: false,
    read(layer, expert, target) {
      const record = target.subarray(0, expertSize)
      return meter.measure(expertSize, onRetry =>
        readPatiently(experts.files[layer], expert * expertSize, record, { signal, onRetry }),
      )
    },
    promote() {},
    async close() {
      closing.abort()
    },
  }
}
