// What the wasm backend asks of the platform it runs on: kernels, threads, readers of experts, and
// how much there is of each; and the switches that tests and measurements set instead. Node has one
// platform (nodePlatform.ts), the tab another (src/apps/browser). One without shared memory has no
// threads: everything runs on the caller's, step by step between iterations of its event loop.
import type { DeviceLostError } from '../../base/errors.js'
import type { MemoryFacts } from '../../base/memoryFacts.js'
import type { WasmMemory } from '../../base/wasmTypes.js'
import type { BlockChecksums } from '../../files/packed/blockChecksums.js'
import type { ByteSource } from '../../files/source.js'
import type { BackendOptions } from '../backend.js'
import type { KernelModule, SimdLevel } from './kernels.js'
import type { AnySetup } from './workers/computeLoop.js'
import type { WorkerReport } from './workers/workerMessages.js'

export interface WasmHost {
  /** False: memories are plain ones that no other thread sees. */
  readonly shared: boolean
  /** Compute threads where nobody says how many. */
  readonly threads: number
  /** That the system has for the threads of this process. */
  readonly processors: number
  /** How much memory there is now. */
  memory(): MemoryFacts
  /** Threads that read experts of so many bytes altogether, where memory is not short. */
  readers(expertBytes: number): number
  /** What a thread takes besides the memory that it works on. */
  readonly threadBytes: { readonly compute: number; readonly reader: number }
  loadKernels(wanted?: SimdLevel): Promise<KernelModule>
  startReaders(request: ReaderRequest, options: BackendOptions): Readers
  startThread(setup: AnySetup, events: ThreadEvents): ComputeThread
}

/** For backends that compute on processors, or on them as well. */
export interface HostedOptions extends BackendOptions {
  /** Where they find threads and readers; Node has its own. */
  readonly wasmHost?: WasmHost
}

interface ReaderRequest {
  readonly files: readonly ByteSource[] // of experts, one per layer; they compare with checksums by themselves
  readonly checksums: BlockChecksums | null // for who reads past the sources
  readonly expertSize: number
  readonly memories: readonly WasmMemory[] // that reads go into
  readonly entries: number // reads that can be asked for at once: one per slot
  readonly slotBytes: number // memory that the slots will fill
  readonly threads: number // where reads have threads of their own
}

export interface Readers {
  readonly ring: ArrayBufferLike // of a ReadRing
  /** Where nothing is shared: takes up what was asked for. Resolves when the next read has ended. */
  serve?(): Promise<void>
  close(): Promise<void>
}

/** One running worker, as the pool sees it. */
export interface ComputeThread {
  /** Keeps the process alive, or not. */
  setRef(on: boolean): void
  /** Ends it whatever it does, and resolves when it has ended. */
  terminate(): Promise<void>
}

export interface ThreadEvents {
  report(report: WorkerReport): void
  /** It ended, by itself or not; `error` where it died of one. */
  ended(error: Error | null): void
}

/** What runs the job on the board: workers, or the caller's own thread. */
export interface ComputePool {
  /** Why nothing can be run any more, from the moment on when that is so. */
  readonly failure: DeviceLostError | null
  /**
   * Runs what is on the board, on so many workers. Rejects with the signal's reason,
   * ExpertReadError or DeviceLostError.
   */
  run(workers: number, signal?: AbortSignal): Promise<void>
  /**
   * Lets a running job stop, then ends the workers. One that does not stop in time is ended as
   * well.
   */
  close(): Promise<void>
}

/** Switches for tests and measurements. */
export interface WasmInternals {
  readonly simd?: SimdLevel
  readonly bankLimit?: number // bytes per memory
  readonly chunkTokens?: number
  readonly commonTokens?: number // of GuessVocabulary
  readonly gate?: SharedArrayBuffer // of a StepGate
}
