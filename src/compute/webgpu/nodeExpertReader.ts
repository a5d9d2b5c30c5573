// Experts from files in Node: the reader threads of src/experts read into shared memory, from where a record is copied
// into the mapped buffer that uploads it.
import { ExpertReadError } from '../../errors.js'
import { ExpertReaderPool } from '../../experts/expertReaderPool.js'
import { alignedSharedBuffer } from '../../experts/nodeReaders.js'
import type { ExpertFiles } from '../../storage/packedModel.js'
import type { BackendOptions } from '../backend.js'
import type { ExpertReader } from './expertReader.js'

export function nodeExpertReader(experts: ExpertFiles, options: BackendOptions, records: number): ExpertReader {
  const { expertSize } = experts.layout
  const bank = alignedSharedBuffer(records * expertSize)
  const bytes = new Uint8Array(bank)
  const free = Array.from({ length: records }, (_, i) => i)
  const waiting: ((record: number) => void)[] = []
  const pool = new ExpertReaderPool({
    files: experts.files.map(file => file.name),
    expertSize,
    banks: [bank],
    slotBytes: 0, // the slots are on the GPU
    depth: records,
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
      try {
        await pool.read(layer, offset, expertSize, 0, record * expertSize, priority)
        target.set(bytes.subarray(record * expertSize, (record + 1) * expertSize))
      } catch (error) {
        const { name } = experts.files[layer]
        throw new ExpertReadError(layer, expert, name, offset, (error as Error).message, { cause: error })
      } finally {
        const next = waiting.shift()
        if (next !== undefined) next(record)
        else free.push(record)
      }
    },
    close: () => pool.close(),
  }
}
