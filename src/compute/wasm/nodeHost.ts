// Node as a place for the wasm backend: threads of the process, files read by threads of their own.

import { availableParallelism } from 'node:os'
import { startAsyncReaders } from '../../experts/asyncReaders.js'
import { availableMemory } from '../../experts/nodeMemory.js'
import { readersFor, startNodeReaders } from '../../experts/nodeReaders.js'
import { pathsOf } from '../../storage/byteSource.js'
import type { WasmHost } from './host.js'
import { loadKernels } from './loadKernels.js'
import { physicalCores, startComputeThread } from './nodeWorkers.js'

export function nodeHost(): WasmHost {
  return {
    shared: true,
    threads: physicalCores(),
    processors: availableParallelism(),
    memory: () => availableMemory(),
    readers: readersFor,
    threadBytes: { compute: 11e6, reader: 7.5e6 }, // measured, see docs/performance-log.md
    loadKernels,
    startThread: startComputeThread,
    startReaders: (request, options) => {
      const { files, checksums, expertSize, memories, entries, slotBytes, threads } = request
      // What is not in files here is fetched by the event loop, which waits for many at once.
      const paths = pathsOf(files)
      if (paths === null) return startAsyncReaders({ ...request, shared: true })
      return startNodeReaders({
        files: paths,
        expertSize,
        banks: memories,
        checksums,
        entries,
        slotBytes,
        threads,
        yieldsToDemands: true,
        reads: options.expertReads,
        faults: options.readFaults,
        onNotice: options.onNotice,
      })
    },
  }
}
