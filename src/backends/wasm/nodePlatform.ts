// Node as a platform of the wasm backend: threads of the process, files read by threads of their
// own, kernels from dist/.
import { readFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { setFlagsFromString } from 'node:v8'
import { availableMemory } from '../../base/nodeMemory.js'
import { startAsyncReaders } from '../../experts/readers/asyncReaders.js'
import { readersFor, startNodeReaders } from '../../experts/readers/nodeReaders.js'
import { pathsOf } from '../../files/source.js'
import { bestSimd, hasRelaxedSimd, type KernelModule, kernelUrl, type SimdLevel } from './kernels.js'
import type { WasmHost } from './platform.js'
import { physicalCores, startComputeThread } from './workers/nodeWorkers.js'

export function nodeHost(): WasmHost {
  return {
    shared: true,
    threads: physicalCores(),
    processors: availableParallelism(),
    memory: () => availableMemory(),
    readers: readersFor,
    threadBytes: { compute: 11e6, reader: 7.5e6 }, // measured, see performance-log.md
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

/** Compiles the fastest build that runs here, or the one that is asked for. */
export async function loadKernels(wanted?: SimdLevel): Promise<KernelModule> {
  if (wanted !== 'baseline') enableRelaxedSimd()
  const simd = wanted ?? bestSimd()
  return { module: await WebAssembly.compile(await readFile(kernelUrl(simd))), simd }
}

/** Node 20 has relaxed SIMD behind a flag, which holds for the whole process and all its threads. */
function enableRelaxedSimd(): void {
  if (!hasRelaxedSimd()) setFlagsFromString('--experimental-wasm-relaxed-simd')
}
