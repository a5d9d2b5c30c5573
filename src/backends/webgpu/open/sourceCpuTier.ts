// A tab as a place for the host tier, where the page is isolated, so that memory can be shared: workers compute, and the
// engine worker's event loop reads experts through the model's byte sources, which compare and cache by themselves.
import type { WasmMemory } from '../../../base/wasmTypes.js'
import { ReadMeter } from '../../../experts/readers/readCounters.js'
import type { ExpertFiles } from '../../../files/packed/packedModel.js'
import { readPatiently } from '../../../files/readRetries.js'
import type { WasmHost } from '../../wasm/platform.js'
import type { SlotReader } from '../experts/cpuTier.js'
import type { TierPlace } from './openCpuTier.js'

export function sourceTierPlace(experts: ExpertFiles, host: WasmHost): TierPlace {
  return { host, readers: 0, openReader: ({ memories }) => sourceSlotReader(experts, memories) }
}

function sourceSlotReader({ files }: ExpertFiles, memories: readonly WasmMemory[]): SlotReader {
  const closing = new AbortController()
  const { signal } = closing
  const meter = new ReadMeter()
  return {
    read(file, offset, size, bank, target) {
      const bytes = new Uint8Array(memories[bank].buffer, target, size)
      return meter.measure(size, onRetry => readPatiently(files[file], offset, bytes, { signal, onRetry }))
    },
    promote() {}, // sources have no order of their own
    callOff: () => false, // it has begun
    get totals() {
      return meter.totals
    },
    async close() {
      closing.abort()
    },
  }
}
