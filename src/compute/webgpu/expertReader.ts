// Reads experts from any byte source into memory that the upload uses. Retries a bounded number of times; where the bytes
// go after that is the caller's business.
import { ChecksumError } from '../../errors.js'
import type { ExpertFiles } from '../../storage/packedModel.js'

export type ReadPriority = 'demand' | 'prefetch'

export interface ReaderTotals {
  readonly bytes: number
  readonly seconds: number // summed over reads
  readonly busySeconds?: number // with at least one read under way, where that is known
  readonly latency: readonly number[]
}

export interface ExpertReader {
  /** Fills `target` with the expert's record; rejects after all retries. */
  read(layer: number, expert: number, target: Uint8Array, priority: ReadPriority): Promise<void>
  /** An expert that is being read ahead is wanted now. */
  promote(layer: number, expert: number): void
  /** Reading ahead costs nothing but the disk's time: files, not a network. */
  readonly isLocal: boolean
  readonly totals: ReaderTotals
  /** Reads that have not begun fail, and sources that can are told to stop. */
  close(): Promise<void>
}

const ATTEMPTS = 3
const LATENCY_BUCKETS = 20

export function sourceExpertReader(experts: ExpertFiles): ExpertReader {
  const { expertSize } = experts.layout
  const closing = new AbortController()
  const totals = { bytes: 0, seconds: 0, latency: new Array<number>(LATENCY_BUCKETS).fill(0) }
  return {
    totals,
    isLocal: false,
    async read(layer, expert, target) {
      const source = experts.files[layer]
      const offset = expert * expertSize
      for (let attempt = 1; ; attempt++) {
        const began = performance.now()
        try {
          await source.read(offset, target.subarray(0, expertSize), closing.signal)
          const ms = performance.now() - began
          totals.bytes += expertSize
          totals.seconds += ms / 1000
          const bucket = Math.floor(Math.log2(Math.max(ms, 1e-3) * 8)) + 1
          totals.latency[Math.max(0, Math.min(LATENCY_BUCKETS - 1, bucket))]++
          return
        } catch (error) {
          const isFinal = error instanceof ChecksumError || closing.signal.aborted // the first were read several times
          if (attempt === ATTEMPTS || isFinal) throw error
        }
      }
    },
    promote() {},
    async close() {
      closing.abort()
    },
  }
}
