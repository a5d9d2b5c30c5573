// Node as a place for the wasm backend: threads of the process, files read by threads of their own.
import { availableMemory } from '../../experts/nodeMemory.js'
import { startNodeReaders } from '../../experts/nodeReaders.js'
import type { WasmHost } from './host.js'
import { loadKernels } from './loadKernels.js'
import { physicalCores, startComputeThread } from './nodeWorkers.js'

export function nodeHost(): WasmHost {
  return {
    shared: true,
    threads: physicalCores(),
    freeBytes: () => availableMemory().bytes,
    loadKernels,
    startThread: startComputeThread,
    startReaders: ({ files, expertSize, memories, entries, slotBytes }, options) =>
      startNodeReaders({
        files: files.map(file => file.name),
        expertSize,
        banks: memories.map(memory => memory.buffer as unknown as SharedArrayBuffer),
        entries,
        slotBytes,
        yieldsToDemands: true,
        reads: options.expertReads,
        faults: options.readFaults,
        onNotice: options.onNotice,
      }),
  }
}
