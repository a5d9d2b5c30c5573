// A tab as a place for the wasm backend: workers where the page is cross-origin isolated, else everything on the engine
// worker's own thread. Experts come through the model's byte sources, on the engine worker's event loop.
import { bestSimd, type KernelModule, type SimdLevel } from '../../backends/wasm/kernels.js'
import type { ComputeThread, ThreadEvents, WasmHost } from '../../backends/wasm/platform.js'
import type { AnySetup } from '../../backends/wasm/workers/computeLoop.js'
import type { WorkerReport } from '../../backends/wasm/workers/workerMessages.js'
import { BackendUnavailableError, FormatError } from '../../base/errors.js'
import { startAsyncReaders } from '../../experts/readers/asyncReaders.js'
import type { ComputeEnd } from './computeWorker.js'

/** Past so many, threads share cores on most machines, and the page wants one as well. */
const MOST_THREADS = 8

export interface BrowserWorkers {
  readonly kernels: Readonly<Record<SimdLevel, URL>>
  startCompute(): Worker
}

export function browserHost(workers: BrowserWorkers): WasmHost {
  const shared = globalThis.crossOriginIsolated === true && typeof SharedArrayBuffer !== 'undefined'
  const processors = navigator.hardwareConcurrency || 1
  return {
    shared,
    threads: Math.min(MOST_THREADS, processors),
    processors,
    memory: () => ({ bytes: tabMemory(), ceiling: Number.POSITIVE_INFINITY, limit: tabMemory(), limitedBy: 'machine' }),
    readers: () => 0, // the engine worker's own event loop
    threadBytes: { compute: 0, reader: 0 }, // of a number that is rough itself
    loadKernels: wanted => loadKernels(workers, wanted, shared),
    startThread: (setup, events) => startThread(workers.startCompute(), setup, events),
    startReaders: request => startAsyncReaders({ ...request, shared }),
  }
}

/** What a tab may use of the machine's memory, of which browsers tell a rough number at most. */
export function tabMemory(): number {
  const { deviceMemory = 4 } = navigator as { deviceMemory?: number } // GiB, 8 at most
  return (deviceMemory / 2) * 2 ** 30
}

async function loadKernels({ kernels }: BrowserWorkers, wanted: SimdLevel | undefined, shared: boolean) {
  const simd = wanted ?? bestSimd()
  const url = kernels[simd]
  const response = await fetch(url).catch(cause => {
    throw new BackendUnavailableError('wasm', `its kernels cannot be loaded from ${url}`, { cause })
  })
  if (!response.ok) throw new BackendUnavailableError('wasm', `${url} answered ${response.status}`)
  const bytes = new Uint8Array(await response.arrayBuffer())
  const module = await WebAssembly.compile(shared ? bytes : unsharedKernels(bytes))
  return { module, simd } satisfies KernelModule
}

function startThread(worker: Worker, setup: AnySetup, events: ThreadEvents): ComputeThread {
  worker.onmessage = ({ data }: MessageEvent<WorkerReport | ComputeEnd>) => {
    if (data.kind === 'ended') events.ended(data.error === null ? null : new Error(data.error))
    else events.report(data)
  }
  worker.onerror = event =>
    events.ended(new Error(event.message || `compute.worker.js cannot be loaded, from beside ${location.href}`))
  worker.postMessage(setup)
  return {
    setRef() {},
    async terminate() {
      worker.terminate()
    },
  }
}

/**
 * The kernels for places without shared memory. A module says whether the memory it imports is shared by one bit of its
 * import section; everything else in it runs on either kind.
 */
const IMPORT_SECTION = 2
const KIND_MEMORY = 2
const FLAG_SHARED = 2

/** The same module with a plain memory in place of its shared one. */
export function unsharedKernels(module: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(module)
  let at = 8 // past magic and version
  const number = (): number => {
    let value = 0
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++]
      value |= (byte & 127) << shift
      if (byte < 128) return value
    }
  }
  while (at < bytes.length) {
    const section = bytes[at++]
    const size = number()
    if (section !== IMPORT_SECTION) {
      at += size
      continue
    }
    number() // imports
    for (let name = 0; name < 2; name++) {
      const length = number() // of the names of module and field
      at += length
    }
    if (bytes[at++] !== KIND_MEMORY) break
    bytes[at] &= ~FLAG_SHARED
    return bytes
  }
  throw new FormatError('BAD_KERNELS', 'kernels', 'the first import is no memory')
}
